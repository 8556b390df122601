"""What is measured: `python -m benchmarks` lists it, and docs/measured.md says what it is for.

`results/` has what was measured, `data/` the lengths of ShareGPT's conversations. All benchmarks
share `registry` (flags, smoke runs, saved files), `report` (machine and versions of a result),
`markdown` (from a result to a table), `engines`, `tiny`, `workload` and `machine_limits`. `tables`
and `values` are what pages show. `gpu` and `tune_kernels` are run by `gpu.sh`.
"""
