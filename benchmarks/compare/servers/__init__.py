"""Our server beside vLLM's: one model, one load, taking turns."""
