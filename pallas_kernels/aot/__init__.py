"""Compiles every kernel for a GPU, without having one, and inspects the machine code.

    python -m pallas_kernels.aot --target h200 --target a100 [--only GLOB] [--json FILE]

XLA and Mosaic compile for a described device: `targets` describes GPUs, `cases` names what is
compiled, `compiling` compiles one case, `ptx` reads the resources of its kernels, and `hlo` looks
for copies of the cache or of weights in XLA's result. A compiler may abort its process on a shape
that it cannot handle, so cases run in separate processes (`worker`).
"""
