"""Multiple-choice accuracy by log-likelihood, in this engine and in transformers."""
