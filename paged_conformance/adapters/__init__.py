"""Adapters of the suites for engines, schedulers, managers and kernels; each imports its own."""
