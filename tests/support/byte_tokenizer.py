"""A tokenizer of single bytes with a chat template, for tiny models that speak text."""

import functools
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from reference.text import byte_level

EOS_TOKEN = "<|end|>"
VOCAB = 257  # the bytes, and the end of sequence
CHAT_TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@functools.cache
def byte_alphabet() -> dict[int, str]:
    """The character that byte-level vocabularies write for each byte."""
    characters = pre_tokenizers.ByteLevel.alphabet()
    return dict(sorted((byte_level(one)[0], one) for one in characters))


def save_byte_tokenizer(folder: Path) -> None:
    """tokenizer.json and tokenizer_config.json: token i is byte i, token 256 ends a sequence."""
    _save(folder, {char: byte for byte, char in byte_alphabet().items()})


def save_letter_tokenizer(folder: Path, vocab_size: int, eos_token_id: int) -> None:
    """For vocabularies of up to 62 tokens: token i is the letter `letter(i)`, but for the end."""
    vocab = {letter(token): token for token in range(vocab_size)}
    del vocab[letter(eos_token_id)]
    _save(folder, vocab | {EOS_TOKEN: eos_token_id})


def letter(token_id: int) -> str:
    """The text of a token of `save_letter_tokenizer`: from "A" on."""
    return chr(ord("A") + token_id)


def _save(folder: Path, vocab: dict[str, int]) -> None:
    backend = Tokenizer(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(EOS_TOKEN, special=True, normalized=False)])
    backend.save(str(folder / "tokenizer.json"))
    config = {"eos_token": EOS_TOKEN, "chat_template": CHAT_TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
