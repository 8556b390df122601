"""One file a model family: how its configuration and its weight names map onto the decoder."""
