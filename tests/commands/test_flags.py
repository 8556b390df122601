"""Help, flags in a YAML file, and how fast the command line starts."""

import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import jax_engine
from jax_engine import EngineArgs, EngineConfig
from jax_engine.cli import COMMANDS, make_parser, with_config
from jax_engine.config.engine_args import GROUP_OF
from jax_engine.config.speculative_config import SpeculativeConfig
from jax_engine.errors import ConfigError
from tests.commands.conftest import Run


def parsed(file: Path, text: str, *words: str) -> Any:
    file.write_text(text)
    arguments = ["serve", "--config", str(file), *words]
    args = make_parser().parse_args(arguments)
    return make_parser().parse_args(with_config(args.parser, args, arguments))


def test_a_file_gives_flags_and_the_command_line_wins(tmp_path: Path) -> None:
    text = """
model: from-file
max-model-len: 64
max_num_seqs: 5
swap_space: 0.5
warmup: true
enable-prefix-caching: false
hf-overrides: {rope_theta: 1}
hf-token: true
served-model-name: [a, b]
api-key: one
seed: null
port: 9
dtype: float32
"""
    args = parsed(tmp_path / "c.yaml", text, "--port", "7", "--api-key=two", "--no-warmup")
    assert (args.port, args.api_key, args.served_model_name) == (7, ["two"], ["a", "b"])
    config = EngineArgs.from_cli_args(args).create_engine_config()
    assert config == EngineConfig(
        model="from-file", max_model_len=64, max_num_seqs=5, swap_space=0.5, dtype="float32",
        enable_prefix_caching=False, hf_overrides={"rope_theta": 1}, hf_token=True,
    )  # fmt: skip
    assert parsed(tmp_path / "c.yaml", "model: a", "b").model is None  # MODEL wins
    assert parsed(tmp_path / "c.yaml", "port: 5", "--", "b").model_tag == "b"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("max-model-length: 5", "max-model-length is not a flag; did you mean max-model-len?"),
        ("config: x.yaml", "config is not a flag"),
        ("warmup: 5", "warmup must be true or false, got 5"),
        ("port: true", "port must not be true"),
        ("port: abc", "invalid int value: 'abc'"),
        ("dtype: float99", "invalid choice: 'float99'"),
        ("max_num_seqs: [1]", "max_num_seqs must be an integer"),
        ("- a", "must hold flags and their values, got ['a']"),
        ("a: [", "is not YAML"),
        ("!!python/object/apply:os.getcwd []", "is not YAML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, run: Run, text: str, problem: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    ended = (
        run("serve", "--port=0", "--config", file)
        if "port" not in text
        else run("serve", "--config", file)
    )
    assert ended.status in (1, 2) and problem in ended.err and ended.err.count("\n") == 1
    for name in (tmp_path / "none.yaml", tmp_path):
        ended = run("serve", "--config", name)
        assert ended.status == 1 and ended.err.count("\n") == 1


def test_each_setting_is_in_one_group() -> None:
    assert sorted(GROUP_OF) == sorted(one.name for one in fields(EngineConfig))


def test_a_token_is_given_with_a_text_or_without() -> None:
    parser = make_parser()
    found = [
        parser.parse_args(["serve", *words]).hf_token
        for words in ([], ["--hf-token"], ["--hf-token", "hf_x"], ["--hf-token=hf_y"])
    ]
    assert found == [None, True, "hf_x", "hf_y"]


def test_guesses_are_asked_for_by_json_or_in_a_file(tmp_path: Path) -> None:
    flag = '--speculative-config={"method": "ngram", "num_speculative_tokens": 3}'
    given = {"method": "ngram", "num_speculative_tokens": 3}
    for args in (
        make_parser().parse_args(["serve", flag]),
        parsed(tmp_path / "c.yaml", f"speculative-config: {given}"),
    ):
        config = EngineArgs.from_cli_args(args).create_engine_config()
        assert config.speculative_config == SpeculativeConfig(num_speculative_tokens=3)
    for text, problem in (
        ("ngram", "speculative_config must be"),
        ('{"method": "eagle"}', "method must be one of"),
    ):
        args = make_parser().parse_args(["serve", "--speculative-config", text])
        with pytest.raises(ConfigError, match=problem):
            EngineArgs.from_cli_args(args).create_engine_config()


@pytest.mark.slow
def test_help_teaches_and_can_be_searched(run: Run) -> None:
    assert all(name in run("--help").out for name in COMMANDS)
    teaches = ("curl http://127.0.0.1:8000/v1/completions", "--max-num-seqs", "B, tokens in a KV")
    assert all(part in run("serve", "--help").out for part in teaches)
    for name in COMMANDS:
        ended = run(name, "--help")
        assert ended.status == 0 and f"jax-engine {name}" in ended.out
    ended = run("serve", "--help=memory")
    assert ended.status == 0 and "--swap-space" in ended.out and "--revision" not in ended.out
    assert "--max-num-seqs" in run("serve", "--help=max_num_seqs").out
    ended = run("serve", "--help=xyzzy")
    assert ended.status == 2 and "groups of flags" in ended.err


def test_a_wrong_flag_is_one_line(run: Run) -> None:
    ended = run("chat", "--temperatures", "1")
    assert ended.status == 2 and ended.err.count("\n") == 1
    assert "did you mean --temperature?" in ended.err


def test_the_command_line_starts_without_what_takes_long() -> None:
    code = """
import sys
import jax_engine.cli
jax_engine.cli.make_parser()
slow = {"jax", "flax", "numba", "transformers", "huggingface_hub", "fastapi", "uvicorn", "yaml",
        "asyncio", "gguf"}
assert not slow & set(sys.modules), slow & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_names_of_generate_and_settings_of_vllm(tmp_path: Path, run: Run) -> None:
    """A setting of vLLM's that has another meaning in a command, and one that only may be None."""
    words = ["generate", "a", "b", "--served-model-name", "x", "y"]
    assert make_parser().parse_args(words).served_model_name == ["x", "y"]
    (tmp_path / "in.jsonl").write_text('{"prompt": "x"}\n')
    for flag, problem in (
        ("--rope-theta=5", "rope_theta must be None"),
        ('--quantization-config={"a": 1}', "quantization_config must be None"),
    ):
        ended = run("generate", tmp_path / "in.jsonl", tmp_path / "out.jsonl", flag)
        assert ended.status == 1 and problem in ended.err and ended.err.count("\n") == 1


@pytest.mark.parametrize("module", ["jax_engine", "jax_engine.cli"])
def test_the_command_runs_as_a_module_too(module: str) -> None:
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == jax_engine.__version__
