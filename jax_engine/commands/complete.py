"""Continues texts.

    jax-engine complete "The capital of France is"
    jax-engine complete --model ./my-model --max-tokens 50 --temperature 0 "Once upon a time"
    jax-engine complete - < story.txt                      the prompt is what is piped in
    jax-engine complete --url http://127.0.0.1:8000 "Hi"   a server does it

The text comes as it is made. Several prompts or samples come one after the other, under headings.
"""

import argparse
import sys
from collections.abc import Iterable

from jax_engine.cli import add_config_flag
from jax_engine.commands.answer_flags import (
    add_sampling_flags,
    add_source_flags,
    make_source,
    sampling_fields,
)
from jax_engine.commands.answers import TextDelta
from jax_engine.errors import InvalidRequestError

USAGE = "[flags] PROMPT..."
HELP = "continue a text"
MAX_TOKENS = 128


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_config_flag(parser)
    parser.add_argument(
        "prompts", nargs="*", metavar="PROMPT", help="a text; - or none: what is piped in"
    )
    add_source_flags(parser)
    add_sampling_flags(parser, MAX_TOKENS)
    parser.add_argument("--n", type=int, metavar="N", help="samples of each prompt (1)")


def run(args: argparse.Namespace) -> int:
    """Writes all completions; returns the exit status."""
    prompts = [_text(one) for one in args.prompts or ["-"]]
    source, fields = make_source(args), sampling_fields(args)
    titled = len(prompts) > 1
    try:
        for prompt in prompts:
            if titled:
                print(f"==> {prompt} <==")
            _write(source.complete(prompt, fields), samples=args.n or 1)
    except KeyboardInterrupt:
        print()
        return 130
    return 0


def _text(prompt: str) -> str:
    """
    Raises:
        InvalidRequestError: there is none.
    """
    if prompt != "-":
        return prompt
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidRequestError("there is no prompt: give one, or pipe it in")
    text = sys.stdin.read().removesuffix("\n")
    if not text:
        raise InvalidRequestError("there is no prompt: the standard input is empty")
    return text


def _write(pieces: Iterable[TextDelta], samples: int) -> None:
    """Writes the first sample as it comes, and the others when it has ended."""
    later = [""] * samples
    if samples > 1:
        print("--- 1")
    for piece in pieces:
        if piece.sample == 0:
            print(piece.text, end="", flush=True)
        else:
            later[piece.sample] += piece.text
    print()
    for number, text in enumerate(later[1:], start=2):
        print(f"--- {number}\n{text}")
