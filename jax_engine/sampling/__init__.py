"""The vectorised sampler: any mixture of requests in one compiled function."""
