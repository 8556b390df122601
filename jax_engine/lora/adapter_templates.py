"""The tokenizer and the chat templates in an adapter's folder: PEFT's trainers copy both into it.

All requests of an engine are made of its one tokenizer's tokens. So a folder's tokenizer must be
the model's, and only its chat templates may differ: `chat` uses them.
"""

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.tokenization.chat_template import DEFAULT, WITH_TOOLS
from jax_engine.tokenization.tokenizer import (
    Tokenizer,
    load_tokenizer,
    templates_of,
    tokenizer_config,
)
from jax_engine.tokenization.tokenizer_fields import described_tokens

# The files that have all tokens; the others add to them.
_WHOLE = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "qwen.tiktoken",
    "tekken.json",
)
_MORE = ("tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "merges.txt")
TOKENIZER_FILES = _WHOLE + _MORE
MAX_KNOWN = 64  # sets of files that are remembered to suit the model
_HINT = (
    "Adapters are computed with the model's tokenizer: merge this one into its model, or delete "
    "the tokenizer's files of its folder if its prompts are made of the model's tokens."
)


class TokenizerCheck:
    """Whether adapters' folders have the model's tokenizer, or none.

    Any thread may call it. A vocabulary takes a second to read, so files that were found to suit
    the model are known by their hash.

    Args:
        eos_token_ids: The tokens that end a text.
    """

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: Collection[int]) -> None:
        self._tokenizer, self._eos = tokenizer, frozenset(eos_token_ids)
        self._known: dict[bytes, None] = {}

    def __call__(self, folder: Path) -> None:
        """
        Raises:
            ConfigError: A token has another id than in the model's tokenizer, or is not in it, or
                texts begin or end with another token.
            JaxEngineError: The files cannot be read, as for `load_tokenizer`.
        """
        files = [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]
        if not files:
            return
        mark = _hash(files)
        if mark in self._known:
            return
        self._check_tokens(folder)
        if any(one.name in _WHOLE for one in files):
            self._check_vocabulary(folder)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[mark] = None

    def _check_tokens(self, folder: Path) -> None:
        """Checks the tokens that the smaller files describe."""
        raw, fields = tokenizer_config(folder)
        described = described_tokens(folder, fields, raw)
        self._check({one.content: index for index, one in described.added.items()}, folder)
        for name, known in (("bos", {self._tokenizer.bos_token_id}), ("eos", self._eos)):
            token = described.named.get(f"{name}_token")
            text = token if token is None or isinstance(token, str) else token.content
            if text is not None and self._tokenizer.backend.token_to_id(text) not in known:
                raise ConfigError(
                    f"{folder} has the {name}_token {shown(text)}, which is not the model's. "
                    f"{_HINT}"
                )

    def _check_vocabulary(self, folder: Path) -> None:
        """Checks all tokens. The model's may be more: some files are padded at their end."""
        own = load_tokenizer(folder).backend.get_vocab(with_added_tokens=True)
        self._check(own, folder)
        last = max(own.values(), default=-1)
        for token, index in self._tokenizer.backend.get_vocab(with_added_tokens=True).items():
            if index <= last and token not in own:
                raise ConfigError(
                    f"{folder} has another vocabulary than the model, whose token {shown(token)} "
                    f"({index}) is not in it. {_HINT}"
                )

    def _check(self, tokens: Mapping[str, int], folder: Path) -> None:
        """Raises ConfigError unless these are tokens of the model, with these ids."""
        for token, index in sorted(tokens.items(), key=lambda one: one[1]):
            found = self._tokenizer.backend.token_to_id(token)
            if found != index:
                here = "is none of the model's" if found is None else f"is {found} in the model's"
                raise ConfigError(
                    f"{folder} has another vocabulary than the model: its token {shown(token)} "
                    f"({index}) {here}. {_HINT}"
                )


def own_templates(path: str | Path, tokenizer: Tokenizer) -> dict[str, str]:
    """The chat templates of an adapter's folder, by name, if they are not the model's; else none.

    Raises:
        WeightsError: A file is damaged.
    """
    folder = Path(path)
    if not folder.is_dir():  # a GGUF file
        return {}
    found = templates_of(folder)
    return {} if found == tokenizer.chat.templates else found


def own_template(templates: Mapping[str, str], *, with_tools: bool) -> str | None:
    """The one of an adapter's templates that is used; None: the model's."""
    return (templates.get(WITH_TOOLS) if with_tools else None) or templates.get(DEFAULT)


def _hash(files: list[Path]) -> bytes:
    digest = hashlib.blake2b()
    for one in files:
        data = one.read_bytes()
        digest.update(f"{one.name} {len(data)} ".encode())
        digest.update(data)
    return digest.digest()
