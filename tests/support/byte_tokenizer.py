"""A tokenizer of single bytes with a chat template, for tiny models that speak text."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from jax_engine.tokenization.token_bytes import BYTE_ALPHABET

EOS_TOKEN = "<|end|>"
VOCAB = 257  # the bytes, and the end of sequence
CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def save_byte_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json: token i is byte i, token 256 ends a sequence."""
    vocab = {char: byte for char, byte in BYTE_ALPHABET.items()}
    backend = Tokenizer(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(EOS_TOKEN, special=True, normalized=False)])
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": EOS_TOKEN, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
