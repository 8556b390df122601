"""The flags of `jax-engine serve`, and their limits."""

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from jax_engine.cli import add_config_flag
from jax_engine.commands.api_keys import NAMES
from jax_engine.commands.vllm_flags import add_vllm_flags, check_vllm_flags
from jax_engine.config.engine_args import EngineArgs, readable_integer
from jax_engine.errors import ConfigError
from jax_engine.progress_log import FORMAT_VARIABLE

if TYPE_CHECKING:
    from jax_engine.serving.served_adapters import LoRAModule


DEFAULT_NAME = "SmolLM2-135M-Instruct"
ALWAYS_ON = (
    "--enable-auto-tool-choice", "--enable-prompt-tokens-details", "--enable-server-load-tracking",
    "--enable-tokenizer-info-endpoint",
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
UVICORN_LEVELS = ("critical", "error", "warning", "info", "debug", "trace")


class OrPlugin(tuple[str, ...]):
    """Choices to which a plugin may add. So any is taken, and checked once it is loaded."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str)


LEAST = {
    "max_body_size": 1,
    "max_waiting": 0,
    "max_samples": 1,
    "request_timeout": 0.001,
    "step_timeout": 0.001,
    "shutdown_timeout": 0,
    "log_stats_interval": 0.1,
    "max_log_len": 0,
    "sse_keep_alive_interval": 0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server's flags, and the engine's."""
    group = parser.add_argument_group("the server")
    add_config_flag(parser)
    EngineArgs.add_cli_args(parser)
    add_vllm_flags(parser)
    parser.add_argument(
        "model_tag",
        nargs="?",
        metavar="MODEL",
        help=f"a directory in Hugging Face layout, a GGUF file or a hub name ({DEFAULT_NAME})",
    )
    _add_access(group)
    _add_model(group)
    _add_answers(group)
    _add_web_pages(group)
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
        action="extend",
        nargs="+",
        metavar="KEY",
        help="keys of which clients must have one. Or a variable: " + NAMES,
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
    _add_templates(group)
    add(
        "--tool-call-parser",
        choices=OrPlugin([*TOOL_CALL_PARSERS, "none"]),
        help="how the model writes calls of tools (as its chat template tells)",
    )
    add(
        "--reasoning-parser",
        choices=OrPlugin([*REASONING_PARSERS, "none"]),
        help="how the model writes its reasoning (as its chat template tells)",
    )
    for kind, parser in (("tool", "--tool-call-parser"), ("reasoning", "--reasoning-parser")):
        add(
            f"--{kind}-parser-plugin",
            metavar="PATH",
            help=f"a Python file that registers parsers, for {parser}; it is run (none)",
        )
    for name in ALWAYS_ON:
        add(name, action="store_true", help="no effect: it is on; for compatibility with vLLM")


def _add_templates(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--chat-template", metavar="FILE", help="Jinja, or a file with it (the model's own)")
    add(
        "--chat-template-content-format",
        choices=("auto", "string", "openai"),
        default="auto",
        help="contents are texts, or lists of parts, for the template; auto: as it reads them "
        "(%(default)s)",
    )
    add(
        "--default-chat-template-kwargs",
        type=_json_object,
        default={},
        metavar="JSON",
        help="options of the template for requests that do not say otherwise, such as "
        """'{"enable_thinking": false}' (none)""",
    )
    add(
        "--reasoning-effort-map",
        type=_json_object,
        default={},
        metavar="JSON",
        help="efforts that the template knows, for others that requests ask for, such as "
        """'{"medium": "low"}' (none)""",
    )
    add(
        "--exclude-tools-when-tool-choice-none",
        action="store_true",
        help="templates are not told of tools that a request forbids to call",
    )
    add(
        "--trust-request-chat-template",
        action="store_true",
        help="run templates that requests bring; one can take any time and memory (refuse them)",
    )


def _json_object(text: str) -> dict[str, Any]:
    """Raises ArgumentTypeError if the text is none."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"must be an object in JSON, got {text!r}")
    return found


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
    add(
        "--enable-per-request-metrics",
        action="store_true",
        help="answers of completions, chats and responses tell their times, in the field metrics",
    )
    add(
        "--sse-keep-alive-interval",
        type=float,
        default=0,
        metavar="S",
        help="streams of completions and chats send a comment after so many seconds without an "
        "event, so that no proxy ends them; 0: never (%(default)s)",
    )
    add(
        "--middleware",
        action="append",
        default=[],
        metavar="MODULE.NAME",
        help="ASGI middleware of your own, a class or an async function of (request, call_next); "
        "may be repeated, the last is the outermost (none)",
    )


def _add_web_pages(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add(
        "--allowed-origins",
        nargs="+",
        default=[],
        metavar="ORIGIN",
        help='web pages that may use the server, such as https://example.com, or "*" (none)',
    )
    for name, what in (("methods", "methods of HTTP"), ("headers", "headers")):
        add(f"--allowed-{name}", nargs="+", default=["*"], metavar="NAME",
            help=f"{what} that their requests may have (any)")  # fmt: skip
    add("--allow-credentials", action="store_true", help="their requests may have cookies")
    add("--disable-fastapi-docs", action="store_true", help="no /docs and no /openapi.json")


def _add_limits(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--max-body-size", type=_integer, default=32 << 20, metavar="BYTES", help="(%(default)s)")
    add(
        "--max-waiting",
        "--max-num-queued-reqs",
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


def _integer(text: str) -> int:
    """As `readable_integer`, under a name that an error of `argparse` may show."""
    try:
        return readable_integer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be an integer, got {text!r}") from error


def _add_tls(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--ssl-certfile", metavar="FILE", help="PEM: serve HTTPS with this certificate")
    add("--ssl-keyfile", metavar="FILE", help="PEM: its key, if it is in a file of its own")
    add("--ssl-ca-certs", metavar="FILE", help="PEM: who vouches for clients' certificates")
    add("--enable-ssl-refresh", action="store_true", help="read these files again when they change")
    add("--ssl-ciphers", metavar="NAMES", help="OpenSSL's names of ciphers for TLS 1.2 (its own)")
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
        "--enable-log-outputs",
        action="store_true",
        help="a line for each output that ends, too; needs --enable-log-requests",
    )
    add(
        "--uvicorn-log-level",
        choices=UVICORN_LEVELS,
        default="info",
        help="of the lines of uvicorn, which speaks HTTP; none is about single requests "
        "(%(default)s)",
    )
    add(
        "--max-log-len",
        type=_integer,
        metavar="N",
        help="how much these lines show of a prompt and of an output: characters, or token ids "
        "(nothing of prompts, 1,000 of outputs)",
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
    check_given(args, "api_key", "served_model_name", "middleware")
    if args.enable_ssl_refresh and not args.ssl_certfile:
        raise ConfigError("--enable-ssl-refresh needs --ssl-certfile")
    if args.enable_log_outputs and not args.enable_log_requests:
        raise ConfigError("--enable-log-outputs needs --enable-log-requests")
    for effort in args.reasoning_effort_map.values():
        if not isinstance(effort, str):
            message = "--reasoning-effort-map must hold names of efforts, got"
            raise ConfigError(f"{message} {effort!r}")
    for name in ("allowed_origins", "allowed_methods", "allowed_headers"):
        setattr(args, name, _listed(name, getattr(args, name)))
    check_vllm_flags(args)


def _listed(name: str, values: list[str]) -> list[str]:
    """The values, which vLLM has in one list in JSON.

    Raises:
        ConfigError: the list is none, or not of texts.
    """
    if len(values) != 1 or not values[0].startswith("["):
        return values
    try:
        found = json.loads(values[0])
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        flag = name.replace("_", "-")
        raise ConfigError(f"--{flag} must be names, or a list of them in JSON, got {values[0]!r}")
    return found


def check_given(args: argparse.Namespace, *names: str) -> None:
    """
    Raises:
        ConfigError: a flag that may be repeated has an empty value, as of a variable that is not
            set.
    """
    for name in names:
        if not all(getattr(args, name) or ()):
            raise ConfigError(f"--{name.replace('_', '-')} must not be empty")
