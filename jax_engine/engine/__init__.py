"""Requests, steps, outputs: an engine and the loop that drives it."""
