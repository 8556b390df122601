"""Reads a model's files: where they are, their configuration, and their tensors.

resolve.py             from a path or a hub name to a model's files, and which hold weights
default_model.py       the model of `LLM()`: fetched once, checked, kept in the cache
cache_dir.py           where downloads and compiled programs are kept
file_schema.py         reads text and JSON, and checks it against declared schemas
checkpoint.py          opens a model: its configuration, and its tensors, which must fit it
safetensors_loader.py  tensors of a directory in Hugging Face layout
cache_scales.py        a checkpoint's scales for an 8-bit KV cache
gguf/                  llama.cpp's files
quantization/          quantised checkpoints in Hugging Face layout, a file for each method
"""
