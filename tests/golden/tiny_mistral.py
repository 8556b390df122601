"""Tiny tokenizers in Mistral's own formats, and the texts and chats that they are compared on.

Written by hand: a tekken.json of each version, and a SentencePiece model with control tokens.
`make_mistral_goldens.py` asks Mistral's own package for the token ids, once.
"""

import base64
import json
import struct
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
GOLDENS = HERE / "mistral.json"
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?"
    r"[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = (
    *("he", "hell", "hello", " hell", " hello", "ell", "wor", " wor", " world", "ab", "abab"),
    *("caf", "café", " the", "the", "th", "ing", "\n\n", "  ", "12", "{\"", "\": ", "日本"),
)  # fmt: skip
CONTROL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]"),
    *("[IMG_END]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
    *("[TOOL_CONTENT]", "[ARGS]", "[CALL_ID]", "[AUDIO]", "[BEGIN_AUDIO]", "[TRANSCRIBE]"),
)
NUM_PLACES = 40  # for control tokens
BEYOND = b"never a token"  # of a rank that default_vocab_size leaves out

TEXTS = (
    "hello world", " hello", "  the  cafe\u0301 café", "abababab", "12 1,234.50",
    "tabs\tand\r\n\n\nlines",
    "日本語 and Ωμέγα", "👩‍👩‍👧 emoji", "MixedCase HTTPServer", "", " ", "\n", "\x00\x07", "don't",
    "hellohello worlds",
)  # fmt: skip
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of “today”.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
CALL = {"id": "abcDEF123", "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}  # fmt: skip
SECOND = {"id": "abcDEF456", "type": "function",
          "function": {"name": "weather", "arguments": "{}"}}  # fmt: skip
USER = {"role": "user", "content": "hello the world"}
REPLY = {"role": "assistant", "content": "café hello"}
SYSTEM = {"role": "system", "content": "Be the world"}
CALLS = {"role": "assistant", "content": "", "tool_calls": [CALL]}


def _result(content: str, call: dict[str, Any] = CALL) -> dict[str, Any]:
    return {"role": "tool", "name": "weather", "tool_call_id": call["id"], "content": content}


# Conversations, with and without tools.
CHATS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "one turn": ([USER], False),
    "several turns": ([USER, REPLY, {"role": "user", "content": " and  then?"}], False),
    "system": ([SYSTEM, USER, REPLY, USER], False),
    "trailing spaces": ([USER, {"role": "assistant", "content": "so  "}, USER], False),
    "tools": ([USER, REPLY, USER], True),
    "tools and system": ([SYSTEM, USER], True),
    "a call": ([USER, CALLS, _result("sunny")], True),
    "a call and more": ([USER, CALLS, _result('{"t": 3}'), REPLY, USER], True),
    "two calls": (
        [USER, CALLS | {"tool_calls": [CALL, SECOND]}, _result("22"), _result("é", SECOND)], True
    ),
}  # fmt: skip
WITHOUT_TOOLS = [name for name, (_, tools) in CHATS.items() if not tools]


def ranked_tokens() -> list[bytes]:
    """The bytes, then the words, each after what it is joined of."""
    found = {bytes([byte]): None for byte in range(256)}
    for word in WORDS:
        data = word.encode()
        found |= {data[:stop]: None for stop in range(2, len(data) + 1)}
    return list(found)


def tekken(version: str, **changes: Any) -> dict[str, Any]:
    """The fields of a tekken.json. Control tokens are listed from v11 on."""
    tokens = [*ranked_tokens(), BEYOND]
    listed = int(version[1:]) >= 11
    fields: dict[str, Any] = {
        "config": {
            "pattern": PATTERN,
            "num_vocab_tokens": len(tokens),
            "default_vocab_size": NUM_PLACES + len(tokens) - 1,
            "default_num_special_tokens": NUM_PLACES,
            "version": version,
        },
        "vocab": [
            {"rank": rank, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
            for rank, one in enumerate(tokens)
        ],
    }
    if listed:
        fields["special_tokens"] = [
            {"rank": rank, "token_str": token, "is_control": True}
            for rank, token in enumerate(CONTROL)
        ]
    return fields | changes


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _chunk(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def sentencepiece(version: int) -> bytes:
    """A SentencePiece model; from v3 on with control tokens."""
    words = [
        "\u2581",
        *"abcdefghilnorstw",
        *WORDS[:3],
        "\u2581hello",
        "wo",
        "\u2581wo",
        "\u2581the",
    ]
    words += ["\u2581world", "[INST]" if version == 1 else "caf"]
    control = CONTROL[3:20] if version >= 3 else ()
    pieces = [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((one, 3) for one in control)]
    pieces += [(f"<0x{byte:02X}>", 6) for byte in range(256)]
    pieces += [(word, 1) for word in words]
    data = b""
    for number, (piece, kind) in enumerate(pieces):
        score = struct.pack("<f", -float(number) if kind == 1 else 0.0)
        data += _chunk(
            1, _chunk(1, piece.encode()) + _varint(2 << 3 | 5) + score + _number(3, kind)
        )
    data += _chunk(2, _number(3, 2) + _number(35, 1))  # BPE, with bytes for unknown characters
    return data + _chunk(3, _chunk(1, b"identity") + _number(3, 1) + _number(4, 0))


VERSIONS = ("v3", "v7", "v11", "v13")
MODELS = {"tokenizer.model.v1": 1, "tokenizer.model.v3": 3, "tokenizer.model.v7": 7}


def write_all(folder: Path) -> dict[str, Path]:
    """Each tokenizer in a folder of its own; the path of each file by its name and version."""
    found = dict[str, Path]()
    for version in VERSIONS:
        found[version] = folder / version / "tekken.json"
        found[version].parent.mkdir()
        found[version].write_text(json.dumps(tekken(version)))
    for name, number in MODELS.items():
        found[name] = folder / f"spm{number}" / name
        found[name].parent.mkdir()
        found[name].write_bytes(sentencepiece(number))
    return found
