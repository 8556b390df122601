"""The paper's evaluation again, simulated and measured: `python -m benchmarks paper`."""
