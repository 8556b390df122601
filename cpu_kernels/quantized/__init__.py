"""Products with weights that stay in codes of 4 or 8 bits: they are decoded in registers."""
