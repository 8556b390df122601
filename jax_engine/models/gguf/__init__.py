"""GGUF files as models: a declaration for each of llama.cpp's architectures."""
