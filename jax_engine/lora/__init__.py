"""LoRA adapters: reading them into immutable values that are named by a digest of their weights."""
