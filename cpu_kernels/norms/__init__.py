"""Normalisation of rows, with the residual addition before it: RMSNorm and LayerNorm."""
