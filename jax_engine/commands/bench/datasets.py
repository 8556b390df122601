"""The prompts of a benchmark and how long their outputs are: random, ShareGPT's, or one's own."""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from jax_engine.commands.bench.benchmark_request import BenchmarkRequest
from jax_engine.errors import ConfigError
from jax_engine.tokenization.tokenizer import Tokenizer

ATTEMPTS = 10
DEFAULT_OUTPUT = 256  # of one's own prompts
# Conversations outside of these lengths are left out, as in vLLM's benchmark and the paper's.
FEWEST, LONGEST_PROMPT, LONGEST = 4, 1024, 2048


class _Turn(msgspec.Struct):
    value: str


class _Conversation(msgspec.Struct):
    """One of ShareGPT's."""

    conversations: list[_Turn]


class _Line(msgspec.Struct):
    """One of one's own."""

    prompt: str
    output_tokens: int | None = None


def add_arguments(parser: argparse.ArgumentParser, datasets: tuple[str, ...]) -> None:
    """Adds the flags of datasets."""
    group = parser.add_argument_group("the requests")
    add = group.add_argument
    add("--dataset-name", choices=datasets, default="random", help="(%(default)s)")
    add(
        "--dataset-path",
        metavar="FILE",
        help="sharegpt: ShareGPT's JSON, or CSV of lengths (prompt_tokens, output_tokens); custom: "
        'JSON lines with "prompt" and, if wanted, "output_tokens"',
    )
    add("--num-prompts", type=int, default=1000, help="(%(default)s)")
    add("--input-len", type=int, metavar="TOKENS", help="of random prompts (1024)")
    add("--output-len", type=int, metavar="TOKENS", help="of outputs (random: 128, custom: 256)")
    add("--random-input-len", type=int, default=1024, help=argparse.SUPPRESS)
    add("--random-output-len", type=int, default=128, help=argparse.SUPPRESS)
    add(
        "--random-range-ratio",
        type=float,
        default=0.0,
        metavar="R",
        help="random lengths are uniform within 1 - R and 1 + R of those given (%(default)s)",
    )
    add("--seed", type=int, default=0, help="of prompts, lengths and arrivals (%(default)s)")


def check(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: a flag is out of range, or does not go with another.
    """
    counts = ["num_prompts", "input_len", "output_len", "random_input_len", "random_output_len"]
    for name in counts:
        value = getattr(args, name)
        if value is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} must be at least 1, got {value}")
    if not 0 <= args.random_range_ratio < 1:
        raise ConfigError(f"--random-range-ratio must be in [0, 1), got {args.random_range_ratio}")
    if args.dataset_name == "random" and args.dataset_path:
        raise ConfigError("--dataset-path does not go with --dataset-name random")
    if args.dataset_name != "random" and not args.dataset_path:
        raise ConfigError(f"--dataset-name {args.dataset_name} needs --dataset-path")


def load(args: argparse.Namespace, tokenizer: Tokenizer) -> list[BenchmarkRequest]:
    """The requests that the flags ask for; the same for the same seed.

    Raises:
        ConfigError: the file cannot be read, or has no request that fits.
    """
    rng = np.random.default_rng(args.seed)
    if args.dataset_name == "random":
        return random_asks(
            tokenizer,
            args.num_prompts,
            args.input_len or args.random_input_len,
            args.output_len or args.random_output_len,
            args.random_range_ratio,
            rng,
        )
    path = Path(args.dataset_path)
    try:
        if args.dataset_name == "custom":
            found = [*_custom(path, tokenizer, args.output_len)]
        elif path.suffix == ".csv":
            return _of_lengths(_lengths(path), args.num_prompts, args.output_len, tokenizer, rng)
        else:
            found = [*_conversations(path, tokenizer, args.output_len, args.num_prompts, rng)]
    except (OSError, msgspec.DecodeError, KeyError, ValueError) as error:
        raise ConfigError(f"--dataset-path {str(path)!r} cannot be read: {error!r}") from error
    return _as_many(found, args.num_prompts, path)


def _as_many[T](found: list[T], count: int, path: Path) -> list[T]:
    """The first `count`; a short file begins again."""
    if not found:
        raise ConfigError(f"--dataset-path {str(path)!r} has no request that fits")
    return [found[i % len(found)] for i in range(count)]


def random_asks(
    tokenizer: Tokenizer,
    count: int,
    input_len: int,
    output_len: int,
    ratio: float,
    rng: np.random.Generator,
) -> list[BenchmarkRequest]:
    """Random texts of these lengths in tokens."""

    def lengths(middle: int) -> list[int]:
        low, high = round(middle * (1 - ratio)), round(middle * (1 + ratio))
        return rng.integers(max(1, low), max(1, high) + 1, size=count).tolist()  # type: ignore[no-any-return]

    text = _RandomText(tokenizer, rng)
    pairs = zip(lengths(input_len), lengths(output_len), strict=True)
    return [BenchmarkRequest(*text.of(length), output) for length, output in pairs]


class _RandomText:
    def __init__(self, tokenizer: Tokenizer, rng: np.random.Generator) -> None:
        ids = np.arange(tokenizer.vocab_size)
        self._ids = np.setdiff1d(ids, [*tokenizer.special_ids])
        self._tokenizer, self._rng = tokenizer, rng

    def of(self, length: int) -> tuple[str, int]:
        """A text, and its number of tokens: `length`, unless the tokenizer merges too eagerly."""
        ids: list[int] = []
        for _ in range(ATTEMPTS):
            ids = [*ids, *self._rng.choice(self._ids, max(0, length - len(ids))).tolist()]
            text = self._tokenizer.decode(ids[:length])
            ids = self._tokenizer.encode(text, add_special_tokens=False)
            if len(ids) == length:
                break
        return text, len(ids)


def _lengths(path: Path) -> list[tuple[int, int]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [*csv.DictReader(file)]
    pairs = [(int(row["prompt_tokens"]), int(row["output_tokens"])) for row in rows]
    return [pair for pair in pairs if _fits(*pair)]


def _of_lengths(
    pairs: list[tuple[int, int]],
    count: int,
    output_len: int | None,
    tokenizer: Tokenizer,
    rng: np.random.Generator,
) -> list[BenchmarkRequest]:
    """Random texts with the lengths of conversations that are drawn."""
    if not pairs:
        raise ConfigError("--dataset-path has no lengths that fit")
    text = _RandomText(tokenizer, rng)
    picks = rng.integers(len(pairs), size=count)
    return [BenchmarkRequest(*text.of(pairs[i][0]), output_len or pairs[i][1]) for i in picks]


def _fits(num_prompt: int, num_output: int) -> bool:
    enough = num_prompt >= FEWEST and num_output >= FEWEST
    return enough and num_prompt <= LONGEST_PROMPT and num_prompt + num_output <= LONGEST


def _conversations(
    path: Path, tokenizer: Tokenizer, output_len: int | None, count: int, rng: np.random.Generator
) -> Iterator[BenchmarkRequest]:
    """First turns of ShareGPT's conversations, shuffled; outputs as long as the second turns."""
    entries = msgspec.json.decode(path.read_bytes(), type=list[_Conversation])
    pairs = [one.conversations for one in entries if len(one.conversations) >= 2]
    found = 0
    for i in rng.permutation(len(pairs)):
        prompt, reply = (turn.value for turn in pairs[i][:2])
        length = len(tokenizer.encode(prompt, add_special_tokens=False))
        output = output_len or len(tokenizer.encode(reply, add_special_tokens=False))
        if found < count and _fits(length, output if output_len is None else FEWEST):
            found += 1
            yield BenchmarkRequest(prompt, length, output)
        if found == count:
            return


def _custom(path: Path, tokenizer: Tokenizer, output_len: int | None) -> Iterator[BenchmarkRequest]:
    for line in path.read_text("utf-8").splitlines():
        if line.strip():
            row = msgspec.json.decode(line, type=_Line)
            length = len(tokenizer.encode(row.prompt, add_special_tokens=False))
            yield BenchmarkRequest(
                row.prompt, length, output_len or row.output_tokens or DEFAULT_OUTPUT
            )
