"""This engine side by side with what people would use instead: `python -m benchmarks compare`."""
