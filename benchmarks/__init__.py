"""What is measured, each as `python -m benchmarks.NAME`; docs/measured.md says which for what.

`results/` has what was measured, `data/` the lengths of ShareGPT's conversations. Shared by the
benchmarks are `engines`, `workload`, `machine_limits` and `report`; `tables` shows results.
"""
