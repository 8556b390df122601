"""Asks Mistral's own package for the token ids of texts and chats, and keeps them.

    python -m tests.golden.make_mistral_goldens

It needs mistral-common with its sentencepiece, and nothing else: an environment of its own.
"""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from tests.golden.tiny_mistral import (
    CHATS,
    GOLDENS,
    MODELS,
    TEXTS,
    TOOLS,
    WITHOUT_TOOLS,
    write_all,
)  # fmt: skip


def answers(name: str, file: Path) -> dict[str, Any]:
    """The ids of each text, with BOS, and of each chat."""
    from mistral_common.protocol.instruct.request import ChatCompletionRequest
    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    made = MistralTokenizer.from_file(str(file))
    tokenizer = made.instruct_tokenizer.tokenizer
    chats = dict[str, list[int]]()
    for chat in WITHOUT_TOOLS if MODELS.get(name) == 1 else CHATS:
        messages, has_tools = CHATS[chat]
        given = ChatCompletionRequest.from_openai(messages, tools=TOOLS if has_tools else None)
        chats[chat] = made.encode_chat_completion(given).tokens
    return {
        "texts": [tokenizer.encode(text, bos=True, eos=False) for text in TEXTS],
        "chats": chats,
    }


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        files = write_all(Path(folder))
        found = {name: answers(name, file) for name, file in files.items()}
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
    GOLDENS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
