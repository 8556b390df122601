"""The server's process: its port, its TLS certificate, its signals, and what ends it."""

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from jax_engine.errors import ConfigError
from jax_engine.serving.api.http_protocol import BoundedHead
from jax_engine.serving.api.tls_files import TlsFiles
from jax_engine.serving.async_llm import AsyncLLM
from jax_engine.serving.stat_loggers import log_stats

logger = logging.getLogger("jax_engine")
WATCH_S = 0.2
# Seconds during which a server whose engine has died still answers 503, before it exits.
LAST_WORDS_S = 3.0
BACKLOG = 2048
ACCEPT_AGAIN_S = 1.0


def bound_socket(host: str, port: int) -> socket.socket:
    """A socket that listens; what connects before the model is loaded waits.

    Raises:
        ConfigError: the address cannot be had.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"host {host!r}, port {port}: {error}") from error
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        found.close()
        raise ConfigError(f"port {port} of {host} cannot be had: {error}") from error
    return found


def bound_unix_socket(path: str) -> socket.socket:
    """As `bound_socket`, in the file system. A file that a server left behind is replaced.

    Raises:
        ConfigError: the path cannot be had.
    """
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if stat.S_ISSOCK(_mode(path)) and not _listens(path):
            os.unlink(path)
        found.bind(path)
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise ConfigError(f"uds {path!r} cannot be had: {error}") from error
    return found


def _mode(path: str) -> int:
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return 0


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(path) == 0


@contextmanager
def ends_by_signal(handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """SIGINT and SIGTERM are handled so; unlike uvicorn's, none is raised again at the end."""
    handlers = {one: signal.signal(one, handle) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in handlers.items():
            signal.signal(one, handler)


class _Server(uvicorn.Server):
    """The first SIGTERM or Ctrl-C drains; the second one ends at once."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes a signal."""
        again, self.should_exit = self.should_exit, True
        if again:
            self.force_exit = True
        else:
            logger.info("draining: open requests go on; a second signal ends them")

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals while the server runs."""
        with ends_by_signal(self.handle_exit):
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to take in connections."""
        await super().startup([])
        self._accepting = [asyncio.ensure_future(self._accept(one)) for one in sockets or ()]

    async def _accept(self, listening: socket.socket) -> None:
        """Takes in one connection in a turn of the event loop. A server of asyncio's takes in all
        that have come: a thousand in one turn, for which all others would wait."""
        loop, opening = asyncio.get_running_loop(), set[asyncio.Task[object]]()
        listening.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # too many files are open, say
                logger.warning("a connection could not be taken in: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            if connection.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.ensure_future(self._open(connection))  # a TLS client may be slow
            opening.add(task)
            task.add_done_callback(opening.discard)
            await asyncio.sleep(0)

    async def _open(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # it has gone, or speaks no TLS
            await loop.connect_accepted_socket(
                lambda: BoundedHead(self.config, self.server_state, self.lifespan.state),
                connection,
                ssl=self.config.ssl,
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Waits for open requests, unless a second signal comes."""
        for one in self._accepting:
            one.cancel()
        drained = asyncio.ensure_future(super().shutdown(sockets))
        while not drained.done() and not self.force_exit:
            await asyncio.wait([drained], timeout=WATCH_S)
        drained.cancel()


def run(
    app: FastAPI,
    llm: AsyncLLM,
    listening: socket.socket,
    shutdown_timeout: float,
    *,
    tls: ssl.SSLContext | None = None,
    log_level: str = "info",
    log_stats_interval: float | None = None,
    prepare: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Serves until a signal or the engine's end; returns the exit status.

    Args:
        tls: for HTTPS.
        log_level: the level of the lines that uvicorn writes.
        log_stats_interval: seconds between two lines about what the engine does; None: none.
        prepare: done in the server's event loop before the first request is taken.
    """
    config = uvicorn.Config(
        app,
        http=BoundedHead,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level=log_level,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(shutdown_timeout)),
        backlog=BACKLOG,
    )
    config.load()
    config.ssl = tls
    server = _Server(config)
    gc.collect()
    gc.freeze()  # a full collection takes 0.1 s, unless it passes over what the start has made
    with asyncio.Runner(loop_factory=_loop) as runner:
        if prepare is not None:
            runner.run(prepare())
        return runner.run(_serve(server, llm, listening, shutdown_timeout, log_stats_interval))


def _loop() -> asyncio.AbstractEventLoop:
    import uvloop

    return uvloop.new_event_loop()


async def _serve(
    server: _Server,
    llm: AsyncLLM,
    listening: socket.socket,
    shutdown_timeout: float,
    log_stats_interval: float | None,
) -> int:
    watch = asyncio.ensure_future(_until_dead(server, llm, shutdown_timeout))
    lines = None
    if log_stats_interval is not None:
        lines = asyncio.ensure_future(log_stats(llm, log_stats_interval))
    try:
        await server.serve([listening])
        return 1 if watch.done() else 0
    finally:
        watch.cancel()
        if lines is not None:
            lines.cancel()


async def _until_dead(server: _Server, llm: AsyncLLM, shutdown_timeout: float) -> None:
    """Ends the server when an engine has ended, after a time in which it says so.

    Requests of other engines may go on for `shutdown_timeout` s.
    """
    while llm.is_running:
        await asyncio.sleep(WATCH_S)
    logger.error("%s: the server ends", llm.dead_error)
    with suppress(TimeoutError):
        async with asyncio.timeout(shutdown_timeout):
            while llm.num_unfinished_requests:
                await asyncio.sleep(WATCH_S)
    llm.shutdown(0.0)
    await asyncio.sleep(LAST_WORDS_S)
    server.should_exit = server.force_exit = True


def tls_context(
    certfile: str | None,
    keyfile: str | None,
    ca_certs: str | None,
    cert_reqs: int,
    *,
    ciphers: str | None = None,
) -> ssl.SSLContext | None:
    """The server's side of TLS; None without a certificate.

    Args:
        certfile: PEM: the server's certificate, and those between it and its root.
        keyfile: PEM: its key; None: it is in `certfile`.
        ca_certs: PEM: who vouches for clients.
        ciphers: for TLS 1.2, as OpenSSL names them; None: its own choice.
        cert_reqs: as `ssl.VerifyMode`: 0: clients have no certificate; 1: they may; 2: they must.

    Raises:
        ConfigError: a file is not there, or not what it should be.
    """
    if certfile is None:
        if keyfile or ca_certs or cert_reqs or ciphers:
            raise ConfigError("--ssl-certfile is missing, which the other --ssl flags need")
        return None
    if cert_reqs and ca_certs is None:
        raise ConfigError(f"--ssl-cert-reqs {cert_reqs} needs --ssl-ca-certs")
    context, files = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), TlsFiles(certfile, keyfile, ca_certs)
    try:
        files.load(context)
    except (OSError, ValueError) as error:
        paths = ", ".join(files.paths)
        raise ConfigError(f"the certificate cannot be read ({paths}): {error}") from error
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            message = f"--ssl-ciphers must name ciphers of OpenSSL, got {ciphers!r}"
            raise ConfigError(message) from error
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    return context
