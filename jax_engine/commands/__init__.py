"""The commands of `jax-engine`, a module each."""
