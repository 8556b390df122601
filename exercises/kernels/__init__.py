"""Kernel puzzles: mend or write a small Pallas kernel, and let `check()` say what is wrong with it.

Each file is one puzzle, in increasing size. Read its first lines, change `launch`, and run it:

    python -m exercises.kernels.double

In this order: double, outer, tail, row_sums, gather, tokens, groups, online, decode, splits.
They need JAX and no GPU: `launch` has what a puzzle returns, `watching` runs its programs one by
one under watch, `examining` compares with NumPy. `exercises/kernels/solutions/` has an answer to
each.
"""
