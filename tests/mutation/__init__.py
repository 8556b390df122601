"""The mutation check: do the tests notice a bug when there is one?

    python -m tests.mutation              every bug written by hand
    python -m tests.mutation --list
    python -m tests.mutation --only fork  those whose file, code or reason contains "fork"
    python -m tests.mutation --generated  every bug made by rule that has no verdict yet
    python -m tests.mutation --sample 100 some of both, for so many seconds (CI)
    python -m tests.mutation --table      docs/mutants.md, from results.json

`make mutation` does all of it. Bugs are planted one at a time: in a fork of a process that has
collected the tests, or, where that cannot be, in a copy of the project.

What became of each bug is kept in `.mutation/`, which is no part of the source, and each run takes
up where the last one stopped. Kept in the source are:

- `results.json`: counts for each folder, and the survivors;
- `killers.tsv`: which tests kill all bugs of which functions, for the sample;
- `equivalents.tsv`, by hand: bugs that change nothing that can be seen, with the reason.

A rule makes bugs of all of `jax_engine/`. Written by hand is what no rule says: mistakes in several
lines or several places, in what is said to files and processes, and in the kernels and the oracle,
which cannot be planted in a fork.
"""
