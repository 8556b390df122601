"""Compiles kernels, caches their code, and finds out whether they run on this machine."""
