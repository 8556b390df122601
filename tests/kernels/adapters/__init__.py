"""Paged attentions of others, for `pytest tests/kernels --kernel tests.kernels.adapters...`."""
