"""One script a peer, each run by its own interpreter; `wire` is what they share (plain Python)."""
