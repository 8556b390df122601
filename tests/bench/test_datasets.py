"""What `bench` sends: lengths, seeds, and files."""

import argparse
import json
from pathlib import Path

import pytest

from benchmarks.workload import LENGTHS, read_lengths
from jax_engine.commands.bench import datasets
from jax_engine.commands.bench.benchmark_request import BenchmarkRequest
from jax_engine.errors import ConfigError
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.support.byte_tokenizer import save_byte_tokenizer

ALL = ("random", "sharegpt", "custom")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("bytes")
    save_byte_tokenizer(folder)
    return load_tokenizer(folder)


def asks(tokenizer: Tokenizer, *flags: str) -> list[BenchmarkRequest]:
    parser = argparse.ArgumentParser()
    datasets.add_arguments(parser, ALL)
    args = parser.parse_args(flags)
    datasets.check(args)
    return datasets.load(args, tokenizer)


def test_random_lengths_and_seeds(tokenizer: Tokenizer) -> None:
    flags = ["--num-prompts=40", "--input-len=20", "--output-len=8", "--random-range-ratio=0.5"]
    found = asks(tokenizer, *flags)
    assert found == asks(tokenizer, *flags) != asks(tokenizer, *flags, "--seed=1")
    assert len({one.prompt for one in found}) > 35
    assert {one.output_len for one in found} == set(range(4, 13))
    for one in found:  # what the server will count
        text = one.prompt
        assert isinstance(text, str) and len(tokenizer.encode(text)) == one.num_prompt
        assert 10 <= one.num_prompt <= 90  # invalid UTF-8 becomes three bytes
    (fixed,) = asks(tokenizer, "--num-prompts=1", "--random-output-len=9", "--input-len=5")
    assert fixed.output_len == 9


def test_sharegpt_lengths(tokenizer: Tokenizer) -> None:
    flags = ["--dataset-name=sharegpt", f"--dataset-path={LENGTHS}", "--num-prompts=20"]
    found = asks(tokenizer, *flags)
    outputs = {output for prompt, output in read_lengths() if prompt <= 1024}
    assert len(found) == 20 and {one.output_len for one in found} <= outputs
    assert found == asks(tokenizer, *flags)
    assert {one.output_len for one in asks(tokenizer, *flags, "--output-len=7")} == {7}


def test_conversations(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    turns = [["Hello you", "Good day"], ["Hi", "too short"], ["x" * 1025, "long"], ["alone"]]
    entries = [{"conversations": [{"value": text} for text in one]} for one in turns]
    path.write_text(json.dumps(entries))
    flags = ["--dataset-name=sharegpt", f"--dataset-path={path}", "--num-prompts=3"]
    assert asks(tokenizer, *flags) == [BenchmarkRequest("Hello you", 9, 8)] * 3


def test_custom_lines(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "custom.jsonl"
    path.write_text('{"prompt": "abc", "output_tokens": 5}\n\n{"prompt": "é"}\n')
    flags = ["--dataset-name=custom", f"--dataset-path={path}", "--num-prompts=3"]
    first = BenchmarkRequest("abc", 3, 5)
    assert asks(tokenizer, *flags) == [first, BenchmarkRequest("é", 2, 256), first]


@pytest.mark.parametrize("text", ["", "{", '{"text": "no prompt"}', "[1]", '{"prompt": 1', "\x00"])
@pytest.mark.parametrize("name", ["sharegpt", "custom"])
def test_files_that_cannot_be_read(
    name: str, text: str, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"file\.json"):
        asks(tokenizer, f"--dataset-name={name}", f"--dataset-path={path}")


def test_a_file_that_is_not_there(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="cannot be read: FileNotFoundError"):
        asks(tokenizer, "--dataset-name=custom", "--dataset-path=nowhere")
