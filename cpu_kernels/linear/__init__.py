"""Products with weights in panels: x @ weight.T, and a gated network's first product with its gate.

    linear.py            the products, of all rows or of rows in groups, whatever the weights' kind
    weights.py           what a product asks of a kind of weights
    product_kernel.py    what the kernels of all kinds share
    chunks.py            how a call's work is cut into items
    gates.py             activations and gates
    panels.py            panels of words: how they are packed
    tiles.py             their products, tile by tile

Weights are of one of three kinds:

    float_weights.py    numbers of 32 or 16 bits
    coded_weights.py    codes of 4 or 8 bits, which are decoded in registers. coded_kinds.py says
                        how they are held, coded_panels.py packs them, coded_tiles.py multiplies,
                        coded_sums.py has the sums of x that their minimums need
    w8a8_weights.py     int8, with rows of x rounded to int8 (w8a8_rows.py) as in SmoothQuant
"""
