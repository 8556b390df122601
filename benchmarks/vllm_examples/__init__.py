"""vLLM's own examples on this engine: which of them run, and what the others need."""
