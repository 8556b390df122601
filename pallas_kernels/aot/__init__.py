"""Every kernel compiled for a GPU that need not be there, and what the machine code looks like.

    python -m pallas_kernels.aot --target h200 --target a100 [--only GLOB] [--json FILE]

XLA and Mosaic compile for a described device: `targets` describes GPUs, `cases` names what is
compiled, `compiling` compiles one case, `ptx` reads the resources of its kernels and `hlo` looks
for copies of the cache or of weights in what XLA made of it. A compiler that meets a shape it
cannot handle may abort its process, so cases run in a process of their own (`worker`).
"""
