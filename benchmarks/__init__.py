"""What is measured, each as `python -m benchmarks.NAME`; results go to benchmarks/results/."""
