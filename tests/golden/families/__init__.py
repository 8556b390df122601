"""Tiny checkpoints of the model families, and what transformers answers to them."""
