"""Flags of `vllm serve` that this server does not have: how each value is treated.

The kinds are those of `jax_engine.config.vllm_settings`, where the engine's settings are, and
`tests/commands/test_vllm_flags.py` holds both to vLLM's own source.
"""

import argparse
import json
import logging
from typing import Any

from jax_engine.checks import shown
from jax_engine.config.vllm_settings import among, refused
from jax_engine.errors import ConfigError

logger = logging.getLogger("jax_engine")

_ONE_PORT = "engines of data_parallel_size are processes behind one port"

# The values that are accepted silently, vLLM's default first; others with a warning.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    # One process speaks HTTP, within limits of its own, and logs no access
    "api_server_count": (None, 1), "data_parallel_supervisor_port": (9256,),
    "disable_access_log_for_endpoints": (None,), "disable_uvicorn_access_log": (False, True),
    "dp_supervisor_probe_failure_threshold": (3,), "dp_supervisor_probe_interval_s": (5.0,),
    "dp_supervisor_probe_timeout_s": (5.0,), "enable_offline_docs": (False,),
    "h11_max_header_count": (256,), "h11_max_incomplete_event_size": (4 << 20,),
    "log_error_stack": (False,),
    # Endpoints and media that are not there
    "anthropic_disabled_thinking_effort": ("auto", "none"), "cohere_format": ("cmd4",),
    "cohere_is_reasoning_model": (True,), "enable_flash_late_interaction": (True, False),
    "enable_log_deltas": (True, False), "enable_reasoning": (False, True),
    "trust_request_mm_kwargs": (False,),
    # Answers have no fingerprint, as with "none"
    "fingerprint_mode": ("full", "none"), "fingerprint_value": (None,),
}  # fmt: skip

# The values that are accepted, vLLM's default first; and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "enable_scale_out": ((False,), "prompts are rendered where they are answered"),
    "grpc": ((False,), "the server speaks HTTP"),
    "grpc_port": ((None,), "the server speaks HTTP"),
    "headless": ((False,), _ONE_PORT),
    "response_role": (("assistant",), "answers are the assistant's"),
    "tool_server": ((None,), "tools run at the client's"),
    "tool_strict_level": ((None, "auto"), "each tool's own strict says whether it is"),
}

DEFAULTS: dict[str, Any] = {name: values[0] for name, values in WITHOUT_EFFECT.items()} | {
    name: values[0] for name, (values, _) in REFUSED.items()
}


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags, which the help leaves out."""
    for name, default in DEFAULTS.items():
        flag = "--" + name.replace("_", "-")
        options: dict[str, Any] = {"default": default, "help": argparse.SUPPRESS}
        if isinstance(default, bool):
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **options)
        elif name == "api_server_count":
            parser.add_argument("-asc", flag, type=_read, **options)
        else:
            parser.add_argument(flag, type=_read, **options)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_vllm_flags(args: argparse.Namespace) -> None:
    """Warns once of all flags that have no effect.

    Raises:
        ConfigError: a flag asks for what is not here.
    """
    for name, (taken, reason) in REFUSED.items():
        if not among(getattr(args, name), taken):
            raise ConfigError(refused(_flag(name), getattr(args, name), taken, reason))
    ignored = [
        f"{_flag(name)} {shown(getattr(args, name))}"
        for name, taken in WITHOUT_EFFECT.items()
        if not among(getattr(args, name), taken)
    ]
    if ignored:
        logger.warning("these flags of vLLM have no effect here: %s", ", ".join(ignored))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
