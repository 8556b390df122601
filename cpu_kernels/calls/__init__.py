"""XLA's calls of kernels: the call frame, the threads that share the work, and `@cpu_kernel`."""
