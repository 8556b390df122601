"""Kernel puzzles: mend or write a small Pallas kernel, and let `check()` say what is wrong with it.

Each file is one puzzle, in increasing size. Read its first lines, change `launch`, and run it:

    .venv/bin/python -m exercises.kernels.double

In this order: double, outer, tail, row_sums, gather, tokens, groups, online, decode, splits.
The command's exit status is 0 if the answer is right, and 1 if not. `make demo` or `make test`
makes `.venv`. The puzzles need JAX and no GPU. `launch` has what a puzzle returns, `watching` runs
its programs one by one under watch, `examining` compares with NumPy, with several poisons in memory
that must not count. `exercises/kernels/solutions/` has an answer to each.
"""
