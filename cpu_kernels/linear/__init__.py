"""Products with packed weights: x @ weight.T, and SwiGLU with its gate."""
