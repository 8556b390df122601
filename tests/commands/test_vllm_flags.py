"""The flags of `vllm serve`: all of vLLM's source, however its users write them."""

import argparse
import json
import logging
from typing import Any

import pytest

from jax_engine.cli import make_parser
from jax_engine.commands.serve_flags import check
from jax_engine.commands.vllm_flags import DEFAULTS, REFUSED, WITHOUT_EFFECT
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.vllm_spelling import meant, spelled_out
from jax_engine.errors import ConfigError
from tests.commands.conftest import Run
from tests.engine.test_vllm_settings import ENGINE, THEIRS

SERVER: dict[str, Any] = THEIRS["server"]
UNKNOWN_DEFAULT = {"log_error_stack"}  # an environment variable decides
PARSER = make_parser()


def served(*words: str) -> argparse.Namespace:
    args: argparse.Namespace = PARSER.parse_args(["serve", *words])
    return args


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def test_no_flag_of_the_server_is_missing() -> None:
    parser = served().parser
    flags = set(parser._option_string_actions)
    assert len(SERVER) > 60
    assert {flag(name) for name in SERVER} - flags == set()
    assert {flag(name) for name in ENGINE} - flags == set()
    short = {one for names in THEIRS["other_names"].values() for one in names}
    assert short - flags == set()
    shown = {one.dest for one in parser._actions if one.help != argparse.SUPPRESS}
    assert not shown & set(DEFAULTS), "what is a flag of its own has no row"
    assert set(DEFAULTS) - set(SERVER) == {"enable_reasoning"}  # of older versions


def test_each_is_taken_silently_at_its_default(caplog: pytest.LogCaptureFixture) -> None:
    for name, value in SERVER.items():
        if name in DEFAULTS and name not in UNKNOWN_DEFAULT:
            assert (DEFAULTS[name] or None) == (value or None)
        words: list[str] = []
        if isinstance(value, bool):
            words = [flag(name)] if value else []
        elif value not in (None, "", [], "?"):
            words = [flag(name), json.dumps(value) if isinstance(value, list) else str(value)]
        check(served(*words))
        assert not caplog.records, name


def test_what_is_refused_is_named_with_its_value_and_the_reason() -> None:
    for name, (taken, reason) in REFUSED.items():
        is_switch = isinstance(taken[0], bool)
        args = served(*([flag(name)] if is_switch else [flag(name), "x9"]))
        with pytest.raises(ConfigError) as error:
            check(args)
        message = str(error.value)
        assert message.startswith(f"{flag(name)} must be ") and message.endswith(f": {reason}")
        assert ("True" if is_switch else "x9") in message.partition(", got ")[2]


def test_what_has_no_effect_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    words = ["--api-server-count", "4", "--h11-max-header-count=9", "-asc", "5"]
    with caplog.at_level(logging.WARNING, "jax_engine"):
        check(served(*words, "--disable-uvicorn-access-log"))
    (record,) = caplog.records
    assert "--api-server-count 5, --h11-max-header-count 9" in record.getMessage()
    assert not set(WITHOUT_EFFECT) & set(REFUSED)


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("-tp 2 -pp 3 -dp 4", {
            "tensor_parallel_size": 2, "pipeline_parallel_size": 3, "data_parallel_size": 4,
        }),
        ("-q fp8", {"quantization": "fp8"}),
        ("-ep", {"enable_expert_parallel": True}),
        ("-O3", {"optimization_level": 3}), ("-O 1", {"optimization_level": 1}),
        ("-O=0", {"optimization_level": 0}),
        ("--max_num_seqs 8", {"max_num_seqs": 8}),
        ("--max_model_len=4K", {"max_model_len": 4096}),
        ("--max-model-len auto", {"max_model_len": -1}),
        ("--kv-cache-memory-bytes 2G", {"kv_cache_memory_bytes": 2 << 30}),
        ("--device-memory-utilization 0.5", {"gpu_memory_utilization": 0.5}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--disable-hybrid-kv-cache-manager", {"disable_hybrid_kv_cache_manager": True}),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph_capture_sizes": [1, 2, 4]}),
        ("-cc.cudagraph_mode=FULL", {"compilation_config": {"cudagraph_mode": "FULL"}}),
        ("-cc.a 1 -cc.b.c 4k --compilation-config.b.d=true", {
            "compilation_config": {"a": 1, "b": {"c": 4000, "d": True}},
        }),
        ('-cc {"a":0,"b":{"x":1}} -cc.b.y=2 -cc.a=3', {
            "compilation_config": {"a": 3, "b": {"x": 1, "y": 2}},
        }),
        ('--compilation-config={"a":1} -cc.b=2', {"compilation_config": {"a": 1, "b": 2}}),
        ("--hf_overrides.a+ x,y --hf-overrides.a+=z", {"hf_overrides": {"a": ["x", "y", "z"]}}),
        ("-cc.a=1 -cc.a.b=2", {"compilation_config": {"a": {"b": 2}}}),
        ("-sc.method ngram --speculative-config.num_speculative_tokens=3", {
            "speculative_config": {"method": "ngram", "num_speculative_tokens": 3},
        }),
        ('--pooler-config {"pooling_type":"MEAN"}', {"pooler_config": {"pooling_type": "MEAN"}}),
        ("--pooler-config.pooling_type CLS", {"pooler_config": {"pooling_type": "CLS"}}),
        ("--seed -1.5", {"seed": -1.5}),
        ("--model a.b/c-1.5", {"model": "a.b/c-1.5"}),
    ],
    ids=str,
)  # fmt: skip
def test_however_a_flag_is_written(line: str, settings: dict[str, Any]) -> None:
    args = served("m", *line.split())
    assert {name: getattr(args, name) for name in settings} == settings
    assert args.model_tag == "m"


def test_words_that_are_no_flags_stay() -> None:
    parser = served().parser
    for words in (
        ["--x_y.z=1", "-x.y", "a_b.c", "-1.5"],
        ["--", "--max_num_seqs", "-O3", "-cc.a=1"],
    ):
        assert spelled_out(parser, words) == words
    assert spelled_out(parser, ["-cc.a=1", "--", "m"]) == [
        "--compilation-config",
        '{"a": 1}',
        "--",
        "m",
    ]
    assert PARSER.parse_args(["complete", "--", "-O3"]).prompts == ["-O3"]
    assert PARSER.parse_args(["chat", "-q", "hi"]).quick == "hi"


def test_a_key_without_a_value_is_one_line(run: Run) -> None:
    ended = run("serve", "--port=0", "-cc.level")
    assert ended.status == 2 and "-cc.level needs a value" in ended.err
    assert ended.err.count("\n") == 1


def test_a_pooler_is_one_as_json_and_a_wrong_one_is_named() -> None:
    args = served('--pooler-config={"pooling_type": "MEAN"}')
    config = EngineArgs.from_cli_args(args).create_engine_config()
    assert config.pooler_config is not None and config.pooler_config.pooling_type == "MEAN"
    wrong = EngineArgs.from_cli_args(served("--pooler-config.pooling_typ=MEAN"))
    with pytest.raises(ConfigError, match=r"pooler_config: pooling_typ is not a field"):
        wrong.create_engine_config()


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--root-pth", "--root-path"), ("--rootpath", "--root-path"), ("--tp", "-tp"),
        ("--gpu-memory", "--gpu-memory-utilization"), ("--quantisation", "--quantization"),
        ("--gpu-mem-util", "--gpu-memory-utilization"), ("--model-length", "--max-model-len"),
        ("--api-keys", "--api-key"), ("--max-tokens", ""), ("--temperature", ""), ("--foo", ""),
        ("--served-model", "--served-model-name"),
        ("--num-gpu-blocks", "--num-gpu-blocks-override"),
    ],
)  # fmt: skip
def test_hints_name_the_flag_that_is_meant(flag: str, hint: str) -> None:
    shown = [one for one in served().parser._actions if one.help != argparse.SUPPRESS]
    flags = [name for action in shown for name in action.option_strings]
    assert meant(flag, flags) == (f"; did you mean {hint}?" if hint else "")


def test_a_hint_is_in_the_one_line(run: Run) -> None:
    for flag, hint in (("--rootpath=/a", "; did you mean --root-path?"), ("--foo", "")):
        ended = run("serve", flag)
        assert ended.status == 2 and ended.err.count("\n") == 1
        assert f"{flag} is not known{hint} (see" in ended.err


def test_a_path_of_a_root_is_no_base_of_rotations() -> None:
    assert meant("--root-path", ["--rope-theta", "--rope-scaling", "--port"]) == ""
