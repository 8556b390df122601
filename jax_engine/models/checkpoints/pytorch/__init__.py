"""Reads files of PyTorch's, `torch.save(state_dict)`, without PyTorch, and runs none of their code.

zip_archive.py    the members of a zip archive, mapped into memory
pickle_reader.py  a pickle's values, of which only known names can be a part
state_dict.py     the names that a pickle of tensors has, and what they make
pytorch_file.py   one file: its tensors by name
"""
