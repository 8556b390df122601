"""How kernels are compiled, kept for later processes, and found out to run or not."""
