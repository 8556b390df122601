"""Paged attention of a ragged batch."""
