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

from jax_engine.commands.api_keys import keys_there
from jax_engine.commands.parser_plugins import load_plugins, use_plugin_markers
from jax_engine.commands.serve_flags import (
    DEFAULT_NAME,
    add_arguments,
    check,
    checked_lora_modules,
)
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.vllm_settings import DEFAULTS
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.progress_log import FORMAT_VARIABLE, show_progress_lines
from jax_engine.tokenization.chat_template import load_chat_template, renderer_class

if TYPE_CHECKING:
    from jax_engine.serving.api.service import ServerSettings


__all__ = ["HELP", "USAGE", "add_arguments", "run"]

USAGE = "[MODEL] [flags]"
HELP = "serve a model over HTTP (OpenAI's API)"

logger = logging.getLogger("jax_engine")
# Settings of vLLM's engine of which this server takes care: its engine need not warn of them.
OF_SERVER = ("max_num_queued_reqs", "otlp_traces_endpoint", "reasoning_parser")


def run(args: argparse.Namespace) -> int:
    """Serves until a signal, or the engine's end; returns the exit status."""
    from jax_engine.serving.api.server import bound_socket, bound_unix_socket, tls_context

    settings = server_settings(args)
    os.environ[FORMAT_VARIABLE] = args.log_format  # the engine's process has it from here
    show_progress_lines("uvicorn")
    tls = tls_context(
        args.ssl_certfile,
        args.ssl_keyfile,
        args.ssl_ca_certs,
        args.ssl_cert_reqs,
        ciphers=args.ssl_ciphers,
    )
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


def server_settings(args: argparse.Namespace) -> "ServerSettings":
    """What the flags say about the server. Loads plugins of parsers, and tells the engine of them.

    Raises:
        ConfigError: a flag is out of range.
    """
    from jax_engine.commands.own_middleware import load_middleware
    from jax_engine.engine.requests.prompts import check_template_options
    from jax_engine.serving.api.service import ServerSettings

    check(args)
    load_plugins(args)
    try:
        check_template_options(args.default_chat_template_kwargs)
    except InvalidRequestError as error:
        raise ConfigError(f"--default-chat-template-kwargs: {error}") from error
    modules = checked_lora_modules(args)
    args.model = args.model_tag or args.model
    if args.enforce_eager:
        logger.warning(
            "--enforce-eager is slow: each step runs operation by operation, for debugging; "
            "without it steps are compiled once and kept"
        )
    settings = ServerSettings(
        names=tuple(args.served_model_name or [args.model or DEFAULT_NAME]),
        lora_modules=modules,
        chat_template=load_chat_template(args.chat_template),
        content_format=args.chat_template_content_format,
        chat_template_kwargs=args.default_chat_template_kwargs,
        reasoning_efforts=args.reasoning_effort_map,
        exclude_forbidden_tools=args.exclude_tools_when_tool_choice_none,
        trust_request_chat_template=args.trust_request_chat_template,
        tool_call_parser=args.tool_call_parser,
        reasoning_parser=args.reasoning_parser,
        api_keys=tuple(args.api_key or keys_there()),
        allowed_origins=tuple(args.allowed_origins),
        allowed_methods=tuple(args.allowed_methods),
        allowed_headers=tuple(args.allowed_headers),
        allow_credentials=args.allow_credentials,
        has_docs=not args.disable_fastapi_docs,
        max_body_bytes=args.max_body_size,
        max_waiting=args.max_waiting,
        max_samples=args.max_samples,
        request_timeout=args.request_timeout,
        root_path=args.root_path.rstrip("/"),
        request_id_headers=args.enable_request_id_headers,
        force_include_usage=args.enable_force_include_usage,
        return_tokens_as_token_ids=args.return_tokens_as_token_ids,
        per_request_metrics=args.enable_per_request_metrics,
        sse_keep_alive_s=args.sse_keep_alive_interval,
        middleware=load_middleware(args.middleware),
    )
    use_plugin_markers(args)
    return settings


def engine_args(args: argparse.Namespace) -> EngineArgs:
    """What the flags say about the engine, without what the server takes care of."""
    found = EngineArgs.from_cli_args(args)
    for name in OF_SERVER:
        setattr(found, name, DEFAULTS[name])
    return found


def _serve(
    args: argparse.Namespace,
    settings: "ServerSettings",
    tls: ssl.SSLContext | None,
    listening: socket.socket,
) -> int:
    from jax_engine.serving.api.app import make_app
    from jax_engine.serving.api.server import run
    from jax_engine.serving.api.service import Service
    from jax_engine.serving.api.tls_files import TlsFiles
    from jax_engine.serving.async_llm import AsyncLLM
    from jax_engine.serving.request_log import MAX_SHOWN, RequestLog
    from jax_engine.serving.tracing import Tracer

    traces = args.otlp_traces_endpoint
    tracer = None if traces is None else Tracer.to_collector(traces, settings.names[0])
    llm = AsyncLLM.from_engine_args(engine_args(args), step_timeout=args.step_timeout)
    if args.enable_log_requests:
        llm.request_log = RequestLog(args.max_log_len or 0)
    if args.enable_log_outputs:
        llm.max_logged_output = MAX_SHOWN if args.max_log_len is None else args.max_log_len
    llm.tracer = tracer
    interval = None if args.disable_log_stats else args.log_stats_interval
    try:
        service = Service(llm, settings)
        app = make_app(service)

        tasks = []

        async def prepare() -> None:
            import asyncio  # which takes long, and most commands do without it

            if args.enable_ssl_refresh and tls is not None:
                files = TlsFiles(args.ssl_certfile, args.ssl_keyfile, args.ssl_ca_certs)
                tasks.append(asyncio.ensure_future(files.refresh(tls)))
            await service.adapters.load_all(settings.lora_modules)
            if service.can_chat and not llm.config.skip_tokenizer_init:
                line = "tool calls are read as %s, reasoning as %s"
                logger.info(line, *service.turn_format.names)
            logger.info("%s is served at %s", settings.names[0], _address(listening, tls))

        timeout = args.shutdown_timeout
        return run(
            app,
            llm,
            listening,
            timeout,
            tls=tls,
            log_level=args.uvicorn_log_level,
            log_stats_interval=interval,
            prepare=prepare,
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
