"""The decoder's building blocks (flax nnx): small modules that own their weights."""
