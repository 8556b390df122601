"""KV blocks of prompts in files, which a restart and other engines find again."""
