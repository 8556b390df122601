"""Requests for hidden states: embeddings, and scores of pairs of texts."""
