"""The mutation check: do the property tests notice a bug when there is one?

    python -m tests.mutation              every planted bug (make mutation)
    python -m tests.mutation --list
    python -m tests.mutation --only fork  those whose file, code or reason contains "fork"

Each bug is planted in a copy of the project, one at a time, and the property tests run on it.
"""
