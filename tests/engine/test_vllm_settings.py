"""The tables of settings are held to vLLM's own source, as `scripts/vllm_settings.py` noted it."""

import argparse
import json
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, AsyncLLM, ConfigError, EngineArgs, EngineConfig
from jax_engine.config.engine_args import SHORT, readable_integer
from jax_engine.config.engine_config import own_settings
from jax_engine.config.vllm_settings import DEFAULTS, LISTS, LOAD_FORMATS, REFUSED, is_switch
from scripts.vllm_settings import NOTED, settings_of
from tests.support.tiny_llama import tiny_llama

THEIRS = json.loads(NOTED.read_text("utf-8"))
ENGINE: dict[str, Any] = THEIRS["engine"]
OWN = {one.name for one in fields(EngineConfig)}
# What a test cannot take from vLLM: its model, and most of this machine's memory.
SMALL = {"skip_tokenizer_init": True, "max_model_len": 16, "max_num_seqs": 2}
SMALL |= {"num_gpu_blocks_override": 8, "gpu_memory_utilization": None, "block_size": 4}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("models") / "tiny")[0])


def test_no_setting_of_vllm_is_missing() -> None:
    assert len(ENGINE) > 250
    assert set(ENGINE) - OWN - set(DEFAULTS) == set()


def test_defaults_are_those_of_vllm() -> None:
    different = {
        name: (value, DEFAULTS[name])
        for name, value in ENGINE.items()
        if name in DEFAULTS and (value or None) != (DEFAULTS[name] or None)
    }
    assert different == {
        "ignore_patterns": (["original/**/*"], "original/**/*"),  # no field may have a list
    }


def test_each_is_taken_silently_at_its_default(caplog: pytest.LogCaptureFixture) -> None:
    for name, value in ENGINE.items():
        own_settings({name: value})
        EngineArgs(**{name: value}).create_engine_config()
        assert not caplog.records, name


@pytest.mark.slow
def test_engines_start_with_all_defaults_of_vllm(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ENGINE | SMALL | {"model": path}
    with caplog.at_level(logging.WARNING, "jax_engine"):
        assert LLM(**settings).llm_engine.max_model_len == 16
        engine = AsyncLLM(**settings)
        assert engine.max_model_len == 16
        engine.shutdown()
    assert not caplog.records


def test_flags_are_written_as_vllm_has_them() -> None:
    """Switches take no value, lists take several, and short names are the same."""
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    flags = parser._option_string_actions
    for name in ENGINE:
        flag = flags["--" + name.replace("_", "-")]
        assert flag.dest == name
        assert isinstance(flag, argparse.BooleanOptionalAction) == (name in THEIRS["switches"])
        assert (flag.nargs == "+") == (name in THEIRS["lists"]), name
    assert {name: list(short) for name, short in SHORT.items()} == {
        name: short for name, short in THEIRS["other_names"].items() if name in ENGINE
    }
    assert set(LISTS) == set(THEIRS["lists"])
    assert not any(is_switch(name) for name in LISTS if name in DEFAULTS)


def test_all_flags_at_their_defaults_change_nothing() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    words = []
    for name, value in ENGINE.items():
        flag = "--" + name.replace("_", "-")
        if name in THEIRS["switches"]:
            words += [] if value is None else [flag if value else flag.replace("--", "--no-", 1)]
        elif value not in (None, "", []):
            values = value if isinstance(value, list) else [value]
            words += [
                flag,
                *(json.dumps(one) if isinstance(one, dict) else str(one) for one in values),
            ]
    config = EngineArgs.from_cli_args(parser.parse_args(words)).create_engine_config()
    assert config == EngineConfig(
        model=ENGINE["model"], gpu_memory_utilization=0.92, hf_overrides={},
        override_generation_config={}, profiler_config={},
    )  # fmt: skip


def test_what_is_refused_is_named_with_its_value_and_the_reason() -> None:
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    for name, (_, reason) in REFUSED.items():
        flag = "--" + name.replace("_", "-")
        words, value = ([flag], "True") if is_switch(name) else ([flag, "x9"], "x9")
        args = EngineArgs.from_cli_args(parser.parse_args(words))
        with pytest.raises(ConfigError) as error:
            args.create_engine_config()
        message = str(error.value)
        assert message.startswith(f"{name} must be ") and message.endswith(f": {reason}")
        assert value in message.partition(", got ")[2]


def test_what_other_processes_are_handed_warns_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "jax_engine"):
        given = {"moe_backend": "triton", "compilation_config": {"cudagraph_mode": "full", "a": 1}}
        own = own_settings(given)
        assert own == {"cudagraph_mode": "FULL"} and len(caplog.records) == 1
        assert EngineConfig.from_settings(**own_settings(own)) == EngineConfig(
            cudagraph_mode="FULL"
        )
    assert len(caplog.records) == 1


@pytest.mark.parametrize(("given", "format"), LOAD_FORMATS.items())
def test_ways_to_read_the_same_weights(
    given: str, format: str, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = EngineConfig(load_format=format)  # type: ignore[arg-type]
    assert EngineConfig.from_settings(load_format=given) == wanted
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    args = EngineArgs.from_cli_args(parser.parse_args([f"--load-format={given}"]))
    assert args.create_engine_config() == wanted and not caplog.records


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4096", 4096), ("4k", 4000), ("4K", 4096), ("25.6k", 25_600), ("2G", 2 << 30),
        ("1m", 10**6), ("1M", 1 << 20), ("3t", 3 * 10**12), ("1T", 1 << 40), ("2g", 2 * 10**9),
        (" 7k ", 7000), ("0.3k", 300), ("-5", -5),
    ],
)  # fmt: skip
def test_integers_as_people_write_them(text: str, number: int) -> None:
    assert readable_integer(text) == number
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    args = parser.parse_args([f"--max-num-batched-tokens={text}"])
    assert args.max_num_batched_tokens == number


@pytest.mark.parametrize("text", ["", "k", "1.5K", "4kb", "4 k", "1e3", "½k", "4kk", "auto", "1.k"])
def test_what_is_no_integer_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        readable_integer(text)
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    args = EngineArgs.from_cli_args(parser.parse_args([f"--max-num-batched-tokens={text}"]))
    with pytest.raises(ConfigError, match="max_num_batched_tokens must be"):
        args.create_engine_config()


def test_the_longest_length_that_memory_has_room_for(path: str) -> None:
    """`auto` and -1: the model's own limit, or what the blocks hold, and no token more."""
    parser = EngineArgs.add_cli_args(argparse.ArgumentParser())
    for text in ("auto", "AUTO", "-1"):
        assert parser.parse_args([f"--max-model-len={text}"]).max_model_len == -1
    limit = LLM(path, **SMALL | {"max_model_len": None, "num_gpu_blocks_override": None})
    limit = limit.llm_engine.max_model_len
    settings = SMALL | {"max_model_len": -1}
    whole = LLM(path, **settings | {"num_gpu_blocks_override": limit})
    assert whole.llm_engine.max_model_len == limit
    length = LLM(path, **settings).llm_engine.max_model_len
    assert 1 <= length < limit
    with pytest.raises(MemoryError):
        LLM(path, **settings | {"max_model_len": length + 1})
    with pytest.raises(MemoryError):
        LLM(path, **settings | {"num_gpu_blocks_override": 1})
    for wrong in (0, -2):
        with pytest.raises(ConfigError, match=f"max_model_len must be at least 1, got {wrong}"):
            EngineConfig(max_model_len=wrong)


SOURCES = {
    "vllm/config/model.py": """
LIMIT = 4 * 1024
class Kind(Enum):
    FAST = "fast"
class Inner:
    x: int = 1
class ModelConfig:
    model: str = "m"
    limit: int = Field(default=LIMIT, ge=1)
    names: list[str] = field(default_factory=lambda: ["*"])
    none: str | None = None
    inner: Inner = Field(default_factory=Inner)
    negative: float = -1.5
    port: int = Field(7)
""",
    "vllm/engine/arg_utils.py": """
class EngineArgs:
    model: str = ModelConfig.model
    limit: int | None = ModelConfig.limit
    names: list[str] = get_field(ModelConfig, "names")
    inner: Inner = get_field(ModelConfig, "inner")
    negative: float = ModelConfig.negative
    port: int = ModelConfig.port
    kind: Kind = Kind.FAST
    on: bool | None = ModelConfig.none
    token: bool | str | None = None
    env: str = os.environ["X"]
    _hidden: int = 3
    def add_cli_args(parser):
        parser.add_argument("--limit", "-l", **kwargs["limit"])
class AsyncEngineArgs(EngineArgs):
    more: bool = False
""",
    "vllm/entrypoints/common/cli_args.py": """
class BaseFrontendArgs:
    chat_template: str | None = None
class FrontendArgs(BaseFrontendArgs):
    port: int = 8000
    required: int = int(ssl.CERT_NONE)
def make(parser):
    parser.add_argument("tag")
    parser.add_argument("--headless", action="store_true", default=False)
""",
}


def test_sources_are_read_without_being_run() -> None:
    found = settings_of(SOURCES)
    assert found["engine"] == {
        "model": "m", "limit": 4096, "names": ["*"], "inner": {}, "negative": -1.5, "port": 7,
        "kind": "fast", "on": None, "token": None, "env": "?", "more": False,
    }  # fmt: skip
    assert found["server"] == {
        "chat_template": None, "port": 8000, "required": 0, "headless": False,
    }  # fmt: skip
    assert found["other_names"] == {"limit": ["-l"]}
    assert (found["switches"], found["lists"]) == (["more", "on"], ["names"])
    assert list(found["engine"]) == sorted(found["engine"])
    assert Path(NOTED).read_text("utf-8") == json.dumps(THEIRS, indent=1) + "\n"
