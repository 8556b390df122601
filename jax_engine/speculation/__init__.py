"""Speculative decoding: who guesses the tokens that a step verifies, and how many it guesses."""
