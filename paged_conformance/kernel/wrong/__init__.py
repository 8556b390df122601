"""Deliberately wrong kernels: each property of the suite fails for at least one of them."""
