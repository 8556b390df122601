"""`EngineArgs`: the settings of an engine as a dataclass that can be filled in step by step.

Its options on a command line stand in groups, as the help shows them.
"""

import argparse
import json
import re
from collections.abc import Callable, Collection
from dataclasses import field, fields, make_dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self, get_args, get_origin, get_type_hints

from jax_engine.checks import named_fields
from jax_engine.config.engine_config import LONGEST, EngineConfig
from jax_engine.config.vllm_settings import DEFAULTS, LISTS, LOAD_FORMATS, is_switch
from jax_engine.errors import ConfigError

# The name of each group, and its fields of `EngineConfig` in the order of the help.
GROUPS: dict[str, tuple[str, ...]] = {
    "model": (
        "model", "tokenizer", "revision", "tokenizer_revision", "download_dir", "hf_token",
        "hf_overrides", "load_format", "config_format", "tokenizer_mode", "dtype", "quantization",
        "generation_config", "override_generation_config", "trust_remote_code",
        "skip_tokenizer_init", "enable_prompt_embeds",
    ),
    "limits": (
        "max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_logprobs",
        "long_prefill_token_threshold",
    ),
    "memory": (
        "gpu_memory_utilization", "kv_cache_memory_bytes", "kv_cache_dtype",
        "num_gpu_blocks_override", "block_size", "swap_space", "enable_prefix_caching",
        "prefix_caching_hash_algo", "kv_events_config", "kv_cache_dir", "kv_cache_dir_bytes",
    ),
    "scheduling": (
        "scheduling", "scheduling_policy", "preemption_mode", "enable_chunked_prefill",
        "async_scheduling", "stream_interval", "speculative_config", "reasoning_config",
    ),
    "adapters": ("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras"),
    "running": (
        "seed", "warmup", "enforce_eager", "cudagraph_mode", "batch_invariant",
        "tensor_parallel_size", "pipeline_parallel_size", "enable_expert_parallel",
        "data_parallel_size", "distributed_executor_backend",
        "logits_processors", "pooler_config", "profiler_config",
    ),
}  # fmt: skip

GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


class _EngineArgs:
    """The methods of `EngineArgs`; its fields are made from two tables."""

    if TYPE_CHECKING:

        def __init__(self, model: str | None = None, **settings: Any) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(vars(self))

    def create_engine_config(self, usage_context: Any = None) -> EngineConfig:
        """Checks the settings.

        Raises:
            ConfigError: One is out of range, contradicts another, or is not supported.
        """
        return EngineConfig.from_settings(**self.settings())

    @classmethod
    def add_cli_args[P: argparse.ArgumentParser](
        cls, parser: P, only: Collection[str] | None = None
    ) -> P:
        """Adds an option for each setting: `--max-model-len 1024`, `--no-warmup`.

        They stand in groups. The help leaves out settings of vLLM's that make no difference here;
        where the parser has an option of such a name, it stays the program's own.

        Args:
            only: the settings that get an option; None: all.
        """
        hints, says = get_type_hints(EngineConfig), _explained(EngineConfig)
        groups = {name: parser.add_argument_group(f"engine: {name}") for name in GROUPS}
        defaults = cls()
        taken = [name for name in DEFAULTS if _flag(name) in parser._option_string_actions]
        if taken:
            parser.set_defaults(**{_OF_PROGRAM: taken})
        for name in [*GROUP_OF, *DEFAULTS] if only is None else only:
            if name in taken:
                continue
            group = groups[GROUP_OF[name]] if name in GROUP_OF else parser
            default = getattr(defaults, name)
            of_vllm = bool if name in DEFAULTS and is_switch(name) else type(default)
            kinds = get_args(hints.get(name)) or (hints.get(name, of_vllm),)
            choices = _choices(kinds)
            if name == "load_format" and choices:
                choices += LOAD_FORMATS
            options = {"default": default, "help": says.get(name, argparse.SUPPRESS)}
            _add_option(group, name, kinds, choices=choices, **options)
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        """Takes the settings from parsed arguments."""
        names = [one.name for one in fields(cls)]  # type: ignore[arg-type]
        others = getattr(args, _OF_PROGRAM, ())
        given = {
            name: getattr(args, name)
            for name in names
            if hasattr(args, name) and name not in others
        }
        for name in LISTS:  # a list in JSON is a list, not one of its values
            match given.get(name):
                case [list(inner)]:
                    given[name] = inner
        return cls(**given)


_OF_PROGRAM = "options_of_program"  # the names of settings whose options mean something else


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


# vLLM's other names of flags
SHORT = {
    "attention_config": ("-ac",), "compilation_config": ("-cc",),
    "data_parallel_address": ("-dpa",), "data_parallel_backend": ("-dpb",),
    "data_parallel_external_lb": ("-dpe",),
    "data_parallel_hybrid_lb": ("-dph",), "data_parallel_multi_port_external_lb": ("-dpm",),
    "data_parallel_rank": ("-dpn",), "data_parallel_rpc_port": ("-dpp",),
    "data_parallel_size": ("-dp",), "data_parallel_size_local": ("-dpl",),
    "data_parallel_start_rank": ("-dpr",), "decode_context_parallel_size": ("-dcp",),
    "diffusion_config": ("-dc",), "enable_expert_parallel": ("-ep",),
    "gpu_memory_utilization": ("--device-memory-utilization",), "nnodes": ("-n",),
    "node_rank": ("-r",), "pipeline_parallel_size": ("-pp",),
    "prefill_context_parallel_size": ("-pcp",), "quantization": ("-q",),
    "speculative_config": ("-sc",), "tensor_parallel_size": ("-tp",),
}  # fmt: skip
_POWERS = {letter: power for power, letter in enumerate("kmgt", start=1)}


def readable_integer(text: str) -> int:
    """An integer as people write it: 4k is 4000, 4K is 4096, 2.5m is 2500000; up to t and T.

    Raises:
        ValueError: It is none. Only decimal suffixes, which are small, have a fraction.
    """
    found = re.fullmatch(r"(\d+)(\.\d+)?([kmgtKMGT])", text.strip())
    if found is None:
        return int(text)
    whole, fraction, letter = found.groups()
    base = 1000 if letter.islower() else 1024
    if fraction and letter.isupper():
        raise ValueError(f"{text} has a fraction of a power of two: {text.lower()}?")
    scale: int = base ** _POWERS[letter.lower()]
    return round(Fraction(whole + (fraction or "")) * scale)


def _explained(config: type) -> dict[str, str]:
    """What the docstring of a dataclass says of each attribute, for `argparse`."""
    attributes = (config.__doc__ or "").partition("Attributes:")[2].partition("Raises:")[0]
    found = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()).replace("%", "%%") for name, text in found}


def _add_option(group: Any, name: str, kinds: tuple[Any, ...], **options: Any) -> None:
    """Adds one option. What may be a text or True is given with a text or without.

    A short name stays the command's own if it has one already.
    """
    short = [one for one in SHORT.get(name, ()) if one not in group._option_string_actions]
    names = (*short, _flag(name))
    options["dest"] = name
    if bool in kinds and str not in kinds:
        del options["choices"]
        group.add_argument(*names, action=argparse.BooleanOptionalAction, **options)
        return
    if bool in kinds:
        options |= {"nargs": "?", "const": True}
    if name in LISTS:
        options |= {"nargs": "+"}
    metavar = name.rpartition("_")[2].upper()
    group.add_argument(*names, type=_reader(name, kinds), metavar=metavar, **options)


def _choices(kinds: tuple[Any, ...]) -> list[str] | None:
    """The values of a setting that has few; None if it has many, or if only None is supported:
    then the engine says why."""
    found: list[str] = []
    for kind in kinds:
        if isinstance(kind, str):
            found.append(kind)
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            found += map(str, kind)
        elif get_origin(kind) is Literal:
            found += get_args(kind)
        elif kind is not type(None):
            return None
    return found or None


def _reader(name: str, kinds: tuple[Any, ...]) -> Callable[[str], Any]:
    """Parses numbers and JSON, and leaves other text as it is."""

    def read(text: str) -> Any:
        if name == "max_model_len" and text.lower() == "auto":
            return LONGEST
        if str in kinds and not text.startswith(("{", "[")):
            return text
        try:
            return json.loads(text)
        except ValueError:
            pass
        try:
            return readable_integer(text) if int in kinds else text
        except ValueError:
            return text

    return read


_own = [(one.name, one.type, field(default=one.default)) for one in fields(EngineConfig)]
_others = [(name, Any, field(default=value)) for name, value in DEFAULTS.items()]

if TYPE_CHECKING:
    EngineArgs = _EngineArgs
else:
    EngineArgs = named_fields(ConfigError)(
        make_dataclass(
            "EngineArgs", _own + _others, bases=(_EngineArgs,), namespace={"__module__": __name__}
        )
    )
    EngineArgs.__doc__ = """Settings of an engine, unchecked.

    All fields of `EngineConfig`, and those of vLLM that `vllm_settings` knows.
    `create_engine_config` checks them; `LLMEngine.from_engine_args` builds an engine.
    """

AsyncEngineArgs = EngineArgs
