"""The flags of each command: what is read is a flag, and what each is if nobody gives it."""

import ast
import shlex
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from jax_engine.cli import make_parser
from jax_engine.commands import vllm_flags
from jax_engine.config.engine_args import EngineArgs
from tests.commands.conftest import Run
from tests.meta.trees import ROOT

COMMANDS = ROOT / "jax_engine" / "commands"
OF_PARSERS = {"run", "parser", "measure", "help", "config"}
SAMPLING: dict[str, Any] = dict.fromkeys(
    ("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
     "repetition_penalty", "stop", "seed")
)  # fmt: skip
SOURCE: dict[str, Any] = SAMPLING | dict.fromkeys(("url", "model_name", "api_key"))
PROMPTS: dict[str, Any] = {
    "dataset_name": "random", "dataset_path": None, "num_prompts": 1000, "input_len": None,
    "output_len": None, "random_input_len": 1024, "random_output_len": 128,
    "random_range_ratio": 0.0,
}  # fmt: skip
# vLLM's defaults where it has the flag (`vllm serve`, `vllm bench`), and those that docs/ names.
DEFAULTS: dict[str, dict[str, Any]] = {
    "serve": {
        "model_tag": None, "host": "127.0.0.1", "port": 8000, "api_key": None, "lora_modules": None,
        "chat_template": None, "trust_request_chat_template": False, "tool_call_parser": None,
        "reasoning_parser": None, "tool_parser_plugin": None,
        "enable_auto_tool_choice": False, "allowed_origins": [],
        "max_body_size": 1 << 25, "max_waiting": None, "max_samples": 4096,
        "request_timeout": None, "step_timeout": 300.0, "shutdown_timeout": 30.0,
        "ssl_certfile": None, "ssl_keyfile": None, "ssl_ca_certs": None, "ssl_cert_reqs": 0,
        "log_stats_interval": 10.0, "enable_log_requests": False, "max_log_len": None,
        "log_format": "text", "uds": None, "root_path": "", "enable_request_id_headers": False,
        "enable_force_include_usage": False, "return_tokens_as_token_ids": False,
        "enable_prompt_tokens_details": False, "enable_server_load_tracking": False,
        "enable_tokenizer_info_endpoint": False, "default_chat_template_kwargs": {},
        "reasoning_effort_map": {}, "chat_template_content_format": "auto",
        "exclude_tools_when_tool_choice_none": False,
        "allowed_methods": ["*"], "allowed_headers": ["*"], "allow_credentials": False,
        "disable_fastapi_docs": False, "ssl_ciphers": None, "uvicorn_log_level": "info",
        "enable_ssl_refresh": False, "enable_log_outputs": False, "middleware": [],
        "enable_per_request_metrics": False, "sse_keep_alive_interval": 0,
    },
    "chat": SOURCE | {
        "system_prompt": None, "quick": None, "chat_template": None, "max_tokens": None,
    },
    "complete x": SOURCE | {"prompts": ["x"], "max_tokens": 128, "n": None},
    "generate a b": SAMPLING | {
        "files": ["a", "b"], "input_file": None, "output_file": None, "text": False,
        "overwrite": False, "chat_template": None, "max_tokens": None, "lora_modules": None,
    },
    "doctor": {"json": False},
    "pull": {"model_tag": None},
    "quantize a b --format w4a16": {
        "model": "a", "out": "b", "format": "w4a16", "algorithm": "rtn", "group_size": None,
        "asymmetric": False, "ignore": [], "act_order": False, "damping": 0.01,
        "smoothing_strength": None, "calibration": None, "samples": 64, "sample_length": 512,
    },
    "bench serve": PROMPTS | {
        "backend": "openai", "base_url": None, "host": "127.0.0.1", "port": 8000, "api_key": None,
        "endpoint": None, "request_rate": float("inf"), "burstiness": 1.0,
        "max_concurrency": None, "num_warmups": 0, "ignore_eos": False, "temperature": None,
        "top_p": None, "top_k": None, "min_p": None, "percentile_metrics": "ttft,tpot,itl",
        "metric_percentiles": "99", "goodput": [], "save_result": False, "save_detailed": False,
        "result_dir": Path(), "result_filename": None,
    },
    "bench throughput": PROMPTS | {"n": 1, "output_json": None},
    "bench latency": {
        "input_len": 32, "output_len": 128, "batch_size": 8, "n": 1, "num_iters_warmup": 10,
        "num_iters": 30, "use_beam_search": False, "output_json": None,
    },
    "completion bash": {"shell": "bash"},
}  # fmt: skip
OF_AN_ENGINE = {"serve", "chat", "complete x", "generate a b", "bench throughput", "bench latency"}
# A flag of each group that help shows, besides those of the engine's settings.
GROUPS: dict[str, dict[str, str]] = {
    "serve": {"the server": "--host"},
    "chat": {
        "a server instead of an engine of this command's own": "--url",
        "sampling (the model's defaults)": "--top-p",
    },
    "quantize a b --format w4a16": {"calibration": "--samples"},
    "bench serve": {
        "the server": "--base-url", "the requests": "--num-prompts",
        "the load": "--request-rate", "the results": "--goodput",
    },
    "bench throughput": {"the requests": "--input-len", "the results": "--output-json"},
    "bench latency": {"the passes": "--num-iters"},
}  # fmt: skip
# Which of their files read flags.
READERS = {
    "serve": ("serve.py", "serve_flags.py"),
    "chat": ("chat.py", "answer_flags.py"),
    "complete x": ("complete.py", "answer_flags.py"),
    "generate a b": ("generate.py",),
    "doctor": ("doctor.py",),
    "pull": ("pull.py",),
    "quantize a b --format w4a16": ("quantize.py",),
    "bench serve": ("bench/serve.py", "bench/datasets.py"),
    "bench throughput": ("bench/throughput.py", "bench/datasets.py", "bench/offline.py"),
    "bench latency": ("bench/latency.py", "bench/offline.py"),
    "completion bash": ("completion.py",),
}


def flags_of(command: str) -> dict[str, Any]:
    found = vars(make_parser().parse_args(shlex.split(command)))
    return {name: value for name, value in found.items() if name not in OF_PARSERS}


def read_by(file: str) -> set[str]:
    """The names of `args` that a file reads."""
    nodes = ast.walk(ast.parse((COMMANDS / file).read_text("utf-8")))
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and ast.unparse(node.value) == "args"
    } - OF_PARSERS


@pytest.mark.parametrize("command", READERS)
def test_what_a_command_reads_is_a_flag_of_its_own(command: str) -> None:
    """A flag that is read only in a rare case, and is not there, would be a traceback then."""
    read = set().union(*map(read_by, READERS[command]))
    assert read and read <= set(flags_of(command))


@pytest.mark.parametrize("command", DEFAULTS)
def test_what_a_flag_is_if_nobody_gives_it(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags of an engine are as `EngineArgs` has them, unless the command needs another."""
    monkeypatch.delenv("JAX_ENGINE_LOG_FORMAT", raising=False)
    found, engine = flags_of(command), ArgumentParser()
    EngineArgs.add_cli_args(engine)
    settings = vars(engine.parse_args([]))
    if command == "serve":
        del settings["max_num_queued_reqs"]  # which is --max-waiting
        settings |= vllm_flags.DEFAULTS
    own = DEFAULTS[command]
    assert {name: value for name, value in found.items() if name in own} == own
    rest = {name: value for name, value in found.items() if name not in own}
    assert rest == {name: settings[name] for name in rest}
    assert (set(settings) <= set(found)) == (command in OF_AN_ENGINE)


@pytest.mark.parametrize("command", GROUPS)
def test_help_shows_flags_in_groups(command: str) -> None:
    parser = make_parser().parse_args(shlex.split(command)).parser
    group_of = {
        name: group.title
        for group in parser._action_groups
        for action in group._group_actions
        for name in action.option_strings
    }
    for title, flag in GROUPS[command].items():
        assert group_of[flag] == title


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("", "COMMAND"),
        ("quantize", "MODEL, OUT, --format"),
        ("quantize a b", "--format"),
        ("quantize a --format w4a16", "OUT"),
        ("bench", "BENCHMARK"),
        ("completion", "shell"),
    ],
)
def test_what_must_be_given_is_named(run: Run, command: str, missing: str) -> None:
    ended = run(*command.split())
    assert ended.status == 2 and not ended.out
    assert f"the following arguments are required: {missing}" in ended.err
