"""Products of int8 weights with rows of x that are rounded to int8: W8A8, as in SmoothQuant."""
