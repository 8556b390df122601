"""The backend for a CPU: the kernels of `cpu_kernels`."""
