"""Tokenizers and chat templates as vLLM's functions give them: those of transformers."""

from pathlib import Path
from typing import Any


def get_tokenizer(
    tokenizer_name: str | Path,
    *args: Any,
    tokenizer_mode: str = "auto",
    trust_remote_code: bool = False,
    revision: str | None = None,
    download_dir: str | None = None,
    **kwargs: Any,
) -> Any:
    """The tokenizer of a directory or of the hub, of transformers' own class.

    Raises:
        ValueError: `tokenizer_mode` names a tokenizer of another library.
    """
    from transformers import AutoTokenizer

    if tokenizer_mode not in ("auto", "hf", "slow"):
        raise ValueError(f"tokenizer_mode must be 'auto', 'hf' or 'slow', got {tokenizer_mode!r}")
    return AutoTokenizer.from_pretrained(
        tokenizer_name,
        *args,
        use_fast=tokenizer_mode != "slow",
        trust_remote_code=False,  # no code of a checkpoint is ever run
        revision=revision,
        cache_dir=download_dir,
        **kwargs,
    )


def resolve_chat_template(
    tokenizer: Any,
    chat_template: str | None,
    tools: list[dict[str, Any]] | None,
    **_: Any,
) -> str | None:
    """The template that was given, else the tokenizer's own for these tools; None: it has none."""
    if chat_template is not None:
        return chat_template
    try:
        template: str = tokenizer.get_chat_template(chat_template, tools=tools)
    except ValueError:  # transformers' word for none
        return None
    return template


resolve_hf_chat_template = resolve_chat_template  # its name until vLLM 0.13
