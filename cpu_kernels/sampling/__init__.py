"""From logits to a token."""
