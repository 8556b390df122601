"""What LoRA adapters cost: beside the same requests without, when they are new, beside vLLM."""
