"""Portable implementations in plain jax.numpy, for any device; tuned for XLA on the CPU."""
