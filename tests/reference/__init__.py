"""Tests of the oracle itself."""
