"""Low-rank products of rows that belong to adapters: B (A x), each row with its adapter's A and B.

    streams.py        up to four rows with a panel of A or B
    arrays.py         where an adapter's arrays are, and which rows are its own
    shrink.py         A x
    expand.py         B (A x)
    add_low_rank.py   A x and B (A x) in one call, added to products
    gate.py           B (A x), added to products in the kernels of gated networks before their gate

Ranks are held in blocks of 16, filled up with zeros: R is a multiple of 16. Some modules that are
multiplied together, such as q, k and v, are parts: each has an A and a B of its own. Arrays hold
all slots of all layers:

    a      [L, slots, parts * R / 16, in / 2, 32]   16 ranks of a column of A, then of the next one
    b      [L, slots, panels, R + 1, 32]            a rank of 32 rows of B; last, their biases
    ranks  [L, slots, parts, 2]                     an adapter's rank, 0: it has no such module; and
                                                    whether it has biases
    halves [2 * panels, 3]                          16 columns of the product: the first, how many
                                                    there are, and their part

a and b are float32 or bfloat16. The rows of slot s are order[starts[s]:starts[s + 1]]. Slot 0 has
no arrays: its rows are not read and not written. A row's sums run over columns, and then over
ranks, in an order that neither the other rows nor the slots change.
"""
