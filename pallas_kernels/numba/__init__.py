"""Kernels for a CPU, compiled by Numba and called by XLA where they stand in a step."""
