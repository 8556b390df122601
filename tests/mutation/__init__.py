"""The mutation check: do the tests notice a bug when there is one?

    python -m tests.mutation              every bug written by hand
    python -m tests.mutation --list
    python -m tests.mutation --only fork  those whose file, code or reason contains "fork"
    python -m tests.mutation --generated  every bug made by rule that has no verdict yet
    python -m tests.mutation --sample 100 some of both, for so many seconds (CI)
    python -m tests.mutation --table      docs/mutants.md, from the verdicts

`make mutation` plants all of both. Bugs are planted one at a time: in a fork of a process that has
collected the tests, or, where that cannot be, in a copy of the project.
"""
