"""Reads a model's files: where they are, their configuration, and their tensors.

resolve.py             from a path or a hub name to a model's files
default_model.py       the model of `LLM()`: fetched once, checked, kept in the cache
cache_dir.py           where downloads and compiled programs are kept
file_schema.py         reads text and JSON, and checks it against declared schemas
checkpoint.py          opens a model: its configuration, and its tensors, which must fit it
weight_layouts.py      which files of a model hold its weights, by their names
files_source.py        the tensors of a directory's files
old_names.py           those of old files of BERT, by their present names
safetensors_file.py    one safetensors file
stored_dtypes.py       dtypes by safetensors' names
cache_scales.py        a checkpoint's scales for an 8-bit KV cache
gguf/                  llama.cpp's files
pytorch/               PyTorch's pickles, of which none runs code
quantization/          quantised checkpoints in Hugging Face layout, a file for each method
"""
