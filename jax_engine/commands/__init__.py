"""The command line: `jax-engine`, and its commands, a module each."""
