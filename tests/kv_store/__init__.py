"""Blocks in files: their format, the folder, the threads, and whole engines that share them."""
