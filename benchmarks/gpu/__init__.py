"""The kernels measured on a GPU against what the same card can do; see `benchmarks/gpu.sh`."""
