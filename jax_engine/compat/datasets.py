"""Prompts for vLLM's programs that measure: random tokens, or a file of one's own.

vLLM has data sets from a hub too; here a name that is none of `NAMES` is refused.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("random", "custom", "sharegpt")


@dataclass(frozen=True)
class SampleRequest:
    """One prompt, and how long its answer is to be, in tokens."""

    prompt: str
    prompt_len: int
    expected_output_len: int
    multi_modal_data: None = None


def add_dataset_parser(parser: argparse.ArgumentParser) -> None:
    """Adds the options that `get_samples` reads."""
    parser.add_argument("--dataset-name", choices=NAMES, default="random")
    parser.add_argument("--dataset-path", help="custom: lines of JSON; sharegpt: one list")
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--random-input-len", type=int, default=1024)
    parser.add_argument("--random-output-len", type=int, default=128)


def get_samples(args: argparse.Namespace, tokenizer: Any) -> list[SampleRequest]:
    """As many prompts as `--num-prompts`, or as the file has.

    Raises:
        ValueError: The file is missing, or not of the form that it should have.
    """
    if args.dataset_name == "random":
        return _random(args, tokenizer)
    if not args.dataset_path:
        raise ValueError(f"--dataset-name {args.dataset_name} needs --dataset-path")
    text = Path(args.dataset_path).read_text("utf-8")
    read = _custom if args.dataset_name == "custom" else _sharegpt
    try:
        pairs = read(text)[: args.num_prompts]
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{args.dataset_path} is no file of {args.dataset_name}: {error!r}"
        ) from error
    return [
        SampleRequest(
            prompt,
            len(tokenizer.encode(prompt)),
            args.random_output_len if answer is None else len(tokenizer.encode(answer)),
        )
        for prompt, answer in pairs
    ]


def _random(args: argparse.Namespace, tokenizer: Any) -> list[SampleRequest]:
    """Text of random tokens: read again they may be a few more or less."""
    rng = np.random.default_rng(args.seed)
    size = args.num_prompts, args.random_input_len
    prompts = [
        tokenizer.decode(row) for row in rng.integers(0, tokenizer.vocab_size, size).tolist()
    ]
    return [SampleRequest(one, args.random_input_len, args.random_output_len) for one in prompts]


def _custom(text: str) -> list[tuple[str, str | None]]:
    lines = [json.loads(line) for line in text.splitlines() if line.strip()]
    return [(line["prompt"], line.get("completion")) for line in lines]


def _sharegpt(text: str) -> list[tuple[str, str | None]]:
    turns = [one["conversations"] for one in json.loads(text)]
    return [(one[0]["value"], one[1]["value"]) for one in turns if len(one) >= 2]
