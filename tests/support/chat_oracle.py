"""Conversations as a byte-level tokenizer with its own marks has them, in plain Python."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE

from reference.text import Vocabulary
from tests.support.byte_tokenizer import byte_alphabet

END, BOS, TURN = "<|end|>", "<|bos|>", "<|turn|>"
MARKS = {END: 256, BOS: 257, TURN: 258}
VOCAB = 259
WORDS = Vocabulary(
    [bytes([byte]) for byte in range(256)] + [mark.encode() for mark in MARKS],
    frozenset(MARKS.values()),
)
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant:{% endif %}"
)


def save_chat_tokenizer(folder: Path) -> None:
    """Token i is byte i; the marks follow. It writes BOS before what it is given, too."""
    vocab = {char: byte for byte, char in byte_alphabet().items()} | MARKS
    backend = Tokenizer(BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, MARKS[BOS])]
    )
    backend.save(str(folder / "tokenizer.json"))
    config = {"bos_token": BOS, "eos_token": END, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def rendered(
    messages: Sequence[dict[str, Any]], *, turn: bool = True, continued: bool = False
) -> str:
    """What `TEMPLATE` says; contents in parts are lines of one text."""
    texts = []
    for message in messages:
        content = message.get("content") or ""
        if not isinstance(content, str):
            content = "\n".join(part["text"] for part in content)
        texts.append(f"{TURN}{message['role']}:{content}")
    text = BOS + "".join(one + END for one in texts)
    if continued:
        return text.removesuffix(END)
    return text + f"{TURN}assistant:" * turn


def encoded(text: str) -> list[int]:
    """Marks are tokens wherever they stand; all else is bytes."""
    pieces = re.split("(" + "|".join(map(re.escape, MARKS)) + ")", text)
    return [i for piece in pieces for i in ([MARKS[piece]] if piece in MARKS else piece.encode())]
