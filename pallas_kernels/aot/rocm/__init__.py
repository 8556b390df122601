"""What compiling for AMD's GPUs takes besides JAX's plugin for them.

`elf` reads ELF files. `stand_ins` writes libraries in the place of ROCm's, which the plugin links
to and no package index has. `code_objects` reads the resources of kernels that XLA and Triton
compiled, as `pallas_kernels.aot.ptx` does for NVIDIA's.
"""
