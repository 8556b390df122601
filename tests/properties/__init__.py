"""The oracle beside the engine: where the two meet, and nowhere else."""
