"""Serves a model over HTTP, as OpenAI's API does.

    jax-engine serve                                  SmolLM2-135M-Instruct, on port 8000
    jax-engine serve ./my-model --port 9000           a directory, a GGUF file, or a hub name
    curl http://127.0.0.1:8000/v1/completions -H "Content-Type: application/json" \\
      -d '{"prompt": "San Francisco is a", "max_tokens": 7, "temperature": 0}'

Only this machine can connect unless --host says otherwise. SIGTERM and Ctrl-C let open requests
finish; a second one ends them.
"""

import argparse
import logging
import os
import threading

from jax_engine.engine_args import EngineArgs
from jax_engine.errors import ConfigError
from jax_engine.progress_log import show_progress_lines
from jax_engine.tokenization.chat import load_chat_template, renderer_class

USAGE = "[MODEL] [flags]"
HELP = "serve a model over HTTP (OpenAI's API)"
DEFAULT_NAME = "SmolLM2-135M-Instruct"
KEY_VARIABLE = "JAX_ENGINE_API_KEY"

logger = logging.getLogger("jax_engine")

_LEAST = {
    "max_body_size": 1,
    "max_waiting": 0,
    "max_samples": 1,
    "request_timeout": 0.001,
    "step_timeout": 0.001,
    "shutdown_timeout": 0,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the server's flags, and the engine's."""
    group = parser.add_argument_group("the server's settings")
    EngineArgs.add_cli_args(parser)
    parser.add_argument(
        "model_tag",
        nargs="?",
        metavar="MODEL",
        help=f"a directory in Hugging Face layout, a GGUF file or a hub name ({DEFAULT_NAME})",
    )
    add = group.add_argument
    add("--host", default="127.0.0.1", help="address to listen at; 0.0.0.0: all (%(default)s)")
    add("--port", type=int, default=8000, help="port to listen at; 0: a free one (%(default)s)")
    add(
        "--api-key",
        action="append",
        metavar="KEY",
        help=f"a key that clients must have; may be repeated. Or the variable {KEY_VARIABLE}",
    )
    add(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="what clients may call the model; the first is its name in answers (MODEL)",
    )
    add("--chat-template", metavar="FILE", help="Jinja, or a file with it (the model's own)")
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


def run(args: argparse.Namespace) -> int:
    """Serves until a signal, or the engine's end; returns the exit status."""
    from jax_engine.serving.async_llm import AsyncLLM
    from jax_engine.serving.openai.app import make_app
    from jax_engine.serving.openai.server import bound_socket, run
    from jax_engine.serving.openai.service import ServerSettings, Service
    from jax_engine.serving.openai.tls import tls_context

    _check(args)
    show_progress_lines()
    args.model = args.model_tag or args.model
    settings = ServerSettings(
        names=tuple(args.served_model_name or [args.model or DEFAULT_NAME]),
        chat_template=load_chat_template(args.chat_template),
        api_keys=tuple(args.api_key or filter(None, [os.environ.get(KEY_VARIABLE)])),
        allowed_origins=tuple(args.allowed_origins),
        max_body_bytes=args.max_body_size,
        max_waiting=args.max_waiting,
        max_samples=args.max_samples,
        request_timeout=args.request_timeout,
    )
    tls = tls_context(args.ssl_certfile, args.ssl_keyfile, args.ssl_ca_certs, args.ssl_cert_reqs)
    # While this process waits for the engine's, it imports what the first chat needs.
    threading.Thread(target=renderer_class, daemon=True).start()
    with bound_socket(args.host, args.port) as listening:  # before a model is loaded for nothing
        llm = AsyncLLM.from_engine_args(
            EngineArgs.from_cli_args(args), step_timeout=args.step_timeout
        )
        try:
            app = make_app(Service(llm, settings))
            scheme = "http" if tls is None else "https"
            host, port = listening.getsockname()[:2]
            logger.info("%s is served at %s://%s:%d", settings.names[0], scheme, host, port)
            return run(app, llm, listening, args.shutdown_timeout, tls)
        finally:
            llm.shutdown()


def _check(args: argparse.Namespace) -> None:
    """
    Raises:
        ConfigError: a flag is out of range.
    """
    if args.model_tag and args.model and args.model_tag != args.model:
        raise ConfigError(f"MODEL is {args.model_tag!r}, but --model {args.model!r}: give one")
    if not 0 <= args.port < 2**16:
        raise ConfigError(f"--port must be in [0, 65535], got {args.port}")
    for name, low in _LEAST.items():
        value = getattr(args, name)
        if value is not None and not low <= value < float("inf"):
            raise ConfigError(f"--{name.replace('_', '-')} must be at least {low}, got {value}")
    if args.api_key and not all(args.api_key):
        raise ConfigError("--api-key must not be empty")
