"""The whole engine measured on a GPU against what the same card can do; see `docs/gpu.md`."""
