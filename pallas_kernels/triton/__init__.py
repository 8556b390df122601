"""PagedAttention in Pallas's Triton dialect, for NVIDIA GPUs from sm_80 (Ampere) on."""
