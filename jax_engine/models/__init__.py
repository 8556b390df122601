"""Models: one configurable decoder, a short declarative file for each family, and the loaders."""
