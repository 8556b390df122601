"""The flags of `jax-engine serve`, and their limits."""

import argparse
import os
from typing import TYPE_CHECKING

from jax_engine.cli import add_config_flag
from jax_engine.config.engine_args import EngineArgs
from jax_engine.errors import ConfigError
from jax_engine.progress_log import FORMAT_VARIABLE

if TYPE_CHECKING:
    from jax_engine.serving.served_adapters import LoRAModule


DEFAULT_NAME = "SmolLM2-135M-Instruct"
KEY_VARIABLE = "JAX_ENGINE_API_KEY"
# Who sets vLLM's variable believes that the server asks for a key.
KEY_VARIABLES = (KEY_VARIABLE, "VLLM_API_KEY")
ALWAYS_ON = (
    "--enable-auto-tool-choice", "--enable-prompt-tokens-details", "--enable-server-load-tracking",
)  # fmt: skip
# As in jax_engine/serving/parsers, which --help does without.
TOOL_CALL_PARSERS = (
    "hermes", "llama3_json", "mistral", "granite", "granite-20b-fc", "pythonic", "olmo3", "xlam",
    "phi4_mini_json", "minimax", "minimax_m2", "openai", "deepseek_v3", "deepseek_v31", "kimi_k2",
    "qwen3_coder", "seed_oss", "glm45", "glm47",
)  # fmt: skip
REASONING_PARSERS = (
    "deepseek_r1", "deepseek_v3", "ernie45", "glm45", "granite", "kimi_k2", "minimax_m2", "mistral",
    "olmo3", "openai_gptoss", "qwen3", "seed_oss",
)  # fmt: skip
LEAST = {
    "max_body_size": 1,
    "max_waiting": 0,
    "max_samples": 1,
    "request_timeout": 0.001,
    "step_timeout": 0.001,
    "shutdown_timeout": 0,
    "log_stats_interval": 0.1,
    "max_log_len": 0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server's flags, and the engine's."""
    group = parser.add_argument_group("the server")
    add_config_flag(parser)
    EngineArgs.add_cli_args(parser)
    parser.add_argument(
        "model_tag",
        nargs="?",
        metavar="MODEL",
        help=f"a directory in Hugging Face layout, a GGUF file or a hub name ({DEFAULT_NAME})",
    )
    _add_access(group)
    _add_model(group)
    _add_answers(group)
    _add_limits(group)
    _add_tls(group)
    _add_logging(group)


def _add_access(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0: all (%(default)s)")
    add("--port", type=int, default=8000, help="port to listen at; 0: a free one (%(default)s)")
    add("--uds", metavar="PATH", help="listen at a Unix socket of this path instead (none)")
    add(
        "--root-path",
        default="",
        metavar="PREFIX",
        help="what a proxy puts before paths, such as /llm; paths without it work, too (none)",
    )
    add(
        "--api-key",
        action="append",
        metavar="KEY",
        help="a key that clients must have; may be repeated. Or a variable: "
        + " or ".join(KEY_VARIABLES),
    )


def add_lora_modules(group: "argparse._ActionsContainer") -> None:
    """Adds the flag of adapters, for who calls `checked_lora_modules`."""
    group.add_argument(
        "--lora-modules",
        nargs="+",
        metavar="NAME=PATH",
        help='LoRA adapters that "model" may name, or JSON with "name" and "path" (none)',
    )


def checked_lora_modules(args: argparse.Namespace) -> "tuple[LoRAModule, ...]":
    """The adapters of the flag. Raises ConfigError if it is wrong, or the engine takes none."""
    from jax_engine.serving.served_adapters import lora_modules

    modules = lora_modules(args.lora_modules)
    if modules and not args.enable_lora:
        raise ConfigError("--lora-modules needs --enable-lora")
    return tuple(modules)


def _add_model(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="what clients may call the model; the first is its name in answers (MODEL)",
    )
    add_lora_modules(group)
    add("--chat-template", metavar="FILE", help="Jinja, or a file with it (the model's own)")
    add(
        "--trust-request-chat-template",
        action="store_true",
        help="run templates that requests bring; one can take any time and memory (refuse them)",
    )
    add(
        "--tool-call-parser",
        choices=[*TOOL_CALL_PARSERS, "none"],
        help="how the model writes calls of tools (as its chat template tells)",
    )
    add(
        "--reasoning-parser",
        choices=[*REASONING_PARSERS, "none"],
        help="how the model writes its reasoning (as its chat template tells)",
    )
    for name in ALWAYS_ON:
        add(name, action="store_true", help="no effect: it is on; for compatibility with vLLM")


def _add_answers(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--enable-request-id-headers",
        action="store_true",
        help="give all answers the header X-Request-Id: the request's own, or a new one",
    )
    add(
        "--enable-force-include-usage",
        action="store_true",
        help="each event of every stream says what its choice has used",
    )
    add(
        "--return-tokens-as-token-ids",
        action="store_true",
        help="log-probabilities name tokens token_id:5, as if all requests asked for it",
    )


def _add_limits(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--allowed-origins",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help='web pages that may use the server, such as https://example.com, or "*" (none)',
    )
    add("--max-body-size", type=int, default=32 << 20, metavar="BYTES", help="(%(default)s)")
    add(
        "--max-waiting",
        type=int,
        metavar="N",
        help="requests that may wait behind --max-num-seqs running ones; more get 503 (any)",
    )
    add(
        "--max-samples",
        type=int,
        default=4096,
        metavar="N",
        help="prompts times n that one request may have (%(default)s)",
    )
    add(
        "--request-timeout",
        type=float,
        metavar="S",
        help="seconds a request may take; then its answer ends as it is (any)",
    )
    add(
        "--step-timeout",
        type=float,
        default=300.0,
        metavar="S",
        help="a step that takes longer counts as the engine's death (%(default)s)",
    )
    add(
        "--shutdown-timeout",
        type=float,
        default=30.0,
        metavar="S",
        help="seconds that open requests have after SIGTERM or Ctrl-C (%(default)s)",
    )


def _add_tls(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--ssl-certfile", metavar="FILE", help="PEM: serve HTTPS with this certificate")
    add("--ssl-keyfile", metavar="FILE", help="PEM: its key, if it is in a file of its own")
    add("--ssl-ca-certs", metavar="FILE", help="PEM: who vouches for clients' certificates")
    add(
        "--ssl-cert-reqs",
        type=int,
        choices=(0, 1, 2),
        default=0,
        help="clients have no certificate (0), may have one (1), must have one (2) (%(default)s)",
    )


def _add_logging(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--log-stats-interval",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds between two lines about what the engine does, if it does (%(default)s)",
    )
    add("--disable-log-stats", action="store_true", help="no such lines")
    add("--enable-log-requests", action="store_true", help="a line for each request")
    add(
        "--max-log-len",
        type=int,
        default=0,
        metavar="N",
        help="how much of a prompt these lines show: characters, or token ids (%(default)s)",
    )
    add(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="where spans of requests go, such as http://localhost:4318/v1/traces (nowhere)",
    )
    add(
        "--log-format",
        choices=["text", "json"],
        default=os.environ.get(FORMAT_VARIABLE, "text"),
        help=f"json: an object a line. Or the variable {FORMAT_VARIABLE} (%(default)s)",
    )


def check(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: a flag is out of range.
    """
    if args.model_tag and args.model and args.model_tag != args.model:
        raise ConfigError(f"MODEL is {args.model_tag!r}, but --model {args.model!r}: give one")
    if not 0 <= args.port < 2**16:
        raise ConfigError(f"--port must be in [0, 65535], got {args.port}")
    for name, low in LEAST.items():
        value = getattr(args, name)
        if value is not None and not low <= value < float("inf"):
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {low}, got {value}")
    if args.root_path.rstrip("/") and not args.root_path.startswith("/"):
        raise ConfigError(f"--root-path must begin with a slash, got {args.root_path!r}")
    check_given(args, "api_key", "served_model_name")


def check_given(args: argparse.Namespace, *names: str) -> None:
    """
    Raises:
        ConfigError: a flag that may be repeated has an empty value, as of a variable that is not
            set.
    """
    for name in names:
        if not all(getattr(args, name) or ()):
            raise ConfigError(f"--{name.replace('_', '-')} must not be empty")
