"""Deterministic simulation: the whole engine under one seeded clock and one source of chance.

    python -m tests.simulation --seed N             one seed, with its log
    python -m tests.simulation --seeds FROM:TO      many; --worker tiny: with a real model

Everything that happens, time and failures included, is drawn from the seed. docs/correctness.md
says how it works.
"""
