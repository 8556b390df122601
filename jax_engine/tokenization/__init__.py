"""Text to tokens and back: tokenizers, incremental detokenisation, stop strings, chat templates."""
