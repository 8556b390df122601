"""A tiny random Llama for servers: its tokens are all bytes and some words, and it can chat.

    python -m paged_conformance.adapters.served_llama FOLDER

Any server that reads Hugging Face's checkpoints serves the folder. The weights are the same each
time, so that a failure can be repeated by others.
"""

import sys
from pathlib import Path

from paged_conformance.adapters import tiny_llama
from paged_conformance.server.requests import WORDS

RARE = 0.6  # of the logits of bytes that are no text by themselves: most answers can be read
TEMPLATE = (
    "{% for message in messages %}{{ '<s>' + message['role'] + ':' + message['content'] + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)


def vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Special tokens, bytes and words, and the pairs that are merged into words."""
    known = tiny_llama.SPECIAL + [tiny_llama.letter(byte) for byte in range(256)]
    merges = []
    for word in (f"{front}{word}" for word in WORDS for front in ("", " ")):
        letters = [tiny_llama.letter(byte) for byte in word.encode()]
        for at in range(1, len(letters)):
            pair = "".join(letters[:at]), letters[at]
            if "".join(pair) not in known:
                known.append("".join(pair))
                merges.append(pair)
    return known, merges


def save(path: Path) -> None:
    """Writes the checkpoint into a new folder."""
    path.mkdir(parents=True)
    known, merges = vocabulary()
    sizes = tiny_llama.SIZES | {"vocab_size": len(known), "max_position_embeddings": 2048}
    made = tiny_llama.weights(sizes)
    first = len(tiny_llama.SPECIAL)
    rare = [first + byte for byte in range(256) if not (32 <= byte < 127 or byte == 10)]
    made["lm_head.weight"][rare] *= RARE
    tiny_llama.save(path, sizes, made, tiny_llama.tokenizer(known, merges), chat_template=TEMPLATE)


if __name__ == "__main__":
    save(Path(sys.argv[1]))
