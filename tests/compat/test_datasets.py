"""Prompts of vLLM's measuring programs."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine.compat.datasets import add_dataset_parser, get_samples


class Letters:
    """A tokenizer of single characters."""

    vocab_size = 26

    def encode(self, text: str) -> list[int]:
        return [ord(one) - ord("a") for one in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(one + ord("a")) for one in ids)


def samples(*arguments: str) -> list[Any]:
    parser = argparse.ArgumentParser()
    add_dataset_parser(parser)
    return get_samples(parser.parse_args(arguments), Letters())


def test_random_prompts_have_their_length_and_hang_on_the_seed() -> None:
    wanted = ("--num-prompts", "3", "--random-input-len", "5", "--random-output-len", "2")
    found = samples(*wanted)
    assert [(len(one.prompt), one.prompt_len, one.expected_output_len) for one in found] == [
        (5, 5, 2)
    ] * 3
    assert found == samples(*wanted) != samples(*wanted, "--seed", "1")


def test_prompts_of_a_file(tmp_path: Path) -> None:
    custom, chats = tmp_path / "custom.jsonl", tmp_path / "chats.json"
    custom.write_text('{"prompt": "abc"}\n\n{"prompt": "d", "completion": "ef"}\n')
    found = samples("--dataset-name", "custom", "--dataset-path", str(custom))
    assert [(one.prompt, one.prompt_len, one.expected_output_len) for one in found] == [
        ("abc", 3, 128),
        ("d", 1, 2),
    ]
    turns = [{"value": "ab"}, {"value": "c"}]
    chats.write_text(json.dumps([{"conversations": turns}, {"conversations": []}]))
    (one,) = samples("--dataset-name", "sharegpt", "--dataset-path", str(chats))
    assert (one.prompt, one.expected_output_len) == ("ab", 1)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text('{"text": 1}')
    with pytest.raises(ValueError, match="needs --dataset-path"):
        samples("--dataset-name", "custom")
    for name in ("custom", "sharegpt"):
        with pytest.raises(ValueError, match=f"is no file of {name}"):
            samples("--dataset-name", name, "--dataset-path", str(tmp_path / "bad"))
