"""Guided decoding: the grammar of a request says which tokens may come next (llguidance)."""
