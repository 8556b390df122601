"""What is measured: `python -m benchmarks` lists it, and docs/measured.md says what it is for.

`results/` has what was measured, `data/` the lengths of ShareGPT's conversations. Shared by the
benchmarks are `engines`, `workload`, `machine_limits` and `report`; `tables` shows results.
"""
