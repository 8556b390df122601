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
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from jax_engine.commands.serve_flags import (
    DEFAULT_NAME,
    KEY_VARIABLES,
    add_arguments,
    check,
    checked_lora_modules,
)
from jax_engine.config.engine_args import EngineArgs
from jax_engine.progress_log import FORMAT_VARIABLE, show_progress_lines
from jax_engine.tokenization.chat_template import load_chat_template, renderer_class

if TYPE_CHECKING:
    from jax_engine.serving.api.service import ServerSettings


__all__ = ["HELP", "USAGE", "add_arguments", "run"]

USAGE = "[MODEL] [flags]"
HELP = "serve a model over HTTP (OpenAI's API)"

logger = logging.getLogger("jax_engine")


def run(args: argparse.Namespace) -> int:
    """Serves until a signal, or the engine's end; returns the exit status."""
    from jax_engine.serving.api.server import bound_socket, bound_unix_socket, tls_context
    from jax_engine.serving.api.service import ServerSettings

    check(args)
    modules = checked_lora_modules(args)
    os.environ[FORMAT_VARIABLE] = args.log_format  # the engine's process has it from here
    show_progress_lines("uvicorn")
    args.model = args.model_tag or args.model
    settings = ServerSettings(
        names=tuple(args.served_model_name or [args.model or DEFAULT_NAME]),
        lora_modules=modules,
        chat_template=load_chat_template(args.chat_template),
        trust_request_chat_template=args.trust_request_chat_template,
        tool_call_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        api_keys=tuple(args.api_key or filter(None, map(os.environ.get, KEY_VARIABLES))),
        allowed_origins=tuple(args.allowed_origins),
        max_body_bytes=args.max_body_size,
        max_waiting=args.max_waiting,
        max_samples=args.max_samples,
        request_timeout=args.request_timeout,
        root_path=args.root_path.rstrip("/"),
        request_id_headers=args.enable_request_id_headers,
        force_include_usage=args.enable_force_include_usage,
        return_tokens_as_token_ids=args.return_tokens_as_token_ids,
    )
    tls = tls_context(args.ssl_certfile, args.ssl_keyfile, args.ssl_ca_certs, args.ssl_cert_reqs)
    own = bound_unix_socket(args.uds) if args.uds else bound_socket(args.host, args.port)
    with own as listening:  # before a model is loaded for nothing
        # While this process waits for the engine's, it imports what the first chat needs.
        importing = threading.Thread(target=renderer_class)
        importing.start()
        try:
            return _serve(args, settings, tls, listening)
        finally:
            importing.join()  # also when the start fails: cut off in an import, Python can abort
            if args.uds:
                os.unlink(args.uds)


def _serve(
    args: argparse.Namespace,
    settings: "ServerSettings",
    tls: ssl.SSLContext | None,
    listening: socket.socket,
) -> int:
    from jax_engine.serving.api.app import make_app
    from jax_engine.serving.api.server import run
    from jax_engine.serving.api.service import Service
    from jax_engine.serving.async_llm import AsyncLLM
    from jax_engine.serving.request_log import RequestLog
    from jax_engine.serving.tracing import Tracer

    traces, args.otlp_traces_endpoint = args.otlp_traces_endpoint, None
    tracer = None if traces is None else Tracer.to_collector(traces, settings.names[0])
    engine_args = EngineArgs.from_cli_args(args)
    llm = AsyncLLM.from_engine_args(engine_args, step_timeout=args.step_timeout)
    if args.enable_log_requests:
        llm.request_log = RequestLog(args.max_log_len)
    llm.tracer = tracer
    interval = None if args.disable_log_stats else args.log_stats_interval
    try:
        service = Service(llm, settings)
        app = make_app(service)

        async def prepare() -> None:
            await service.adapters.load_all(settings.lora_modules)
            if service.can_chat and not llm.config.skip_tokenizer_init:
                line = "tool calls are read as %s, reasoning as %s"
                logger.info(line, *service.turn_format.names)
            logger.info("%s is served at %s", settings.names[0], _address(listening, tls))

        timeout = args.shutdown_timeout
        return run(
            app, llm, listening, timeout, tls=tls, log_stats_interval=interval, prepare=prepare
        )
    finally:
        llm.shutdown()
        if tracer is not None:
            tracer.close()


def _address(listening: socket.socket, tls: ssl.SSLContext | None) -> str:
    scheme = "http" if tls is None else "https"
    if listening.family == socket.AF_UNIX:
        return f"{scheme}+unix:{listening.getsockname()}"
    host, port = listening.getsockname()[:2]
    return f"{scheme}://{host}:{port}"
