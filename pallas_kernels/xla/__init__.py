"""PagedAttention in plain jax.numpy, for any device; tuned for XLA on a CPU."""
