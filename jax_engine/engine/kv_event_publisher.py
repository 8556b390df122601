"""Publishes what comes into the prefix cache and goes from it, as vLLM does, byte for byte.

Routers such as llm-d, Dynamo and AIBrix subscribe to it. Each message has three frames: the topic,
the number of the batch (8 bytes, the highest first), and the batch in MessagePack. Whoever has
missed some sends the number of the first one to the replay address, and gets those that are kept.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, Full, Queue
from typing import Any

import msgspec
import zmq

from jax_engine.checks import shown
from jax_engine.config.kv_events_config import KVEventsConfig, address_of
from jax_engine.core.block_digest import Algorithm, block_keys, digest_function
from jax_engine.core.kv_events import BlockEvicted, BlocksStored, CacheCleared, KVEvent
from jax_engine.core.prefix_cache import Node, salt_parts
from jax_engine.errors import ConfigError
from jax_engine.processes.child_process import TERM_S, Context

logger = logging.getLogger("jax_engine")
HASHES_VARIABLE = "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"
MEDIUM = "GPU"  # vLLM's word for the device's memory, whatever the device
END = (-1).to_bytes(8, "big", signed=True)
LINGER_MS, WAIT_S = 1000, 1.0
MAX_NAMES = 10_000
type BlockHash = bytes | int


class Event(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    """What all events have: the name of their class."""


class BlockStored(Event):
    """Blocks that a prompt may hit now, each the child of the one before.

    Attributes:
        parent_block_hash: The block before the first one; None: it begins a text.
        token_ids: The tokens of all these blocks.
        lora_name: The name of the request's adapter.
        extra_keys: For each block what keeps it apart from others with the same tokens.
    """

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    # vLLM's others: never written here, but a map of so many fields has a longer head.
    kv_cache_spec_kind: None = None
    kv_cache_spec_sliding_window: None = None
    locality: None = None
    ownership: None = None
    session_id: None = None
    lookahead_token_ids: None = None


class BlockRemoved(Event):
    """Blocks that no prompt can hit any more."""

    block_hashes: list[BlockHash]
    medium: str | None
    group_idx: int | None = None


class AllBlocksCleared(Event):
    """The cache is empty."""


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of a step.

    Attributes:
        ts: Seconds since 1970.
    """

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


class KVEventPublisher:
    """One thread that writes the events of an engine and sends them. It ends with the publisher.

    Args:
        rank: The engine's number, from 0, among those of one server.

    Raises:
        ConfigError: An address cannot be bound.
    """

    def __init__(self, config: KVEventsConfig, algorithm: Algorithm, rank: int = 0) -> None:
        self._queue: Queue[tuple[float, list[KVEvent]]] = Queue(config.max_queue_size)
        self._words = _Words(algorithm, rank)
        context: Context = zmq.Context()
        try:
            sockets = _open_sockets(context, config, rank)
        except BaseException:
            context.destroy(linger=0)
            raise
        reader, self._bell = os.pipe()
        os.set_blocking(self._bell, False)
        sender = _Sender(config, self._words, self._queue, reader, context, *sockets)
        thread = threading.Thread(target=sender.run, name="KV events", daemon=True)
        self._thread, self._lock = thread, threading.Lock()
        self._end = weakref.finalize(self, _end, self._bell, self._lock, thread)
        thread.start()

    def publish(self, events: list[KVEvent]) -> None:
        """Sends these events as one batch; waits only while `max_queue_size` batches wait."""
        while events and self._end.alive and self._thread.is_alive():
            with suppress(Full):
                self._queue.put((time.time(), events), timeout=WAIT_S)
                self._ring()
                return

    def _ring(self) -> None:
        with self._lock, suppress(BlockingIOError):  # the thread is to be woken already
            if self._end.alive:  # else the bell is closed, and its number may be another file's
                os.write(self._bell, b".")

    def name_adapter(self, digest: str, name: str) -> None:
        """Tells what requests call the adapter of this digest."""
        self._words.name_adapter(digest, name)

    def close(self) -> None:
        """Sends what is left, and frees the addresses."""
        self._end()


class _Words:
    """Events in vLLM's words."""

    def __init__(self, algorithm: Algorithm, rank: int) -> None:
        self._digest, self._rank = digest_function(algorithm), rank
        self._as_numbers = _hashes_are_numbers(os.environ.get(HASHES_VARIABLE))
        self._names: dict[str, str] = {}

    def name_adapter(self, digest: str, name: str) -> None:
        if self._names.get(digest) != name:
            self._names[digest] = name
            if len(self._names) > MAX_NAMES:
                self._names.pop(next(iter(self._names)), None)

    def batch(self, ts: float, events: list[KVEvent]) -> EventBatch:
        return EventBatch(ts, [self._event(event) for event in events], self._rank)

    def _event(self, event: KVEvent) -> BlockStored | BlockRemoved | AllBlocksCleared:
        match event:
            case BlocksStored(nodes):
                return self._stored(nodes)
            case BlockEvicted(node):
                return BlockRemoved([self._hash(node)], MEDIUM, 0)
            case CacheCleared():
                return AllBlocksCleared()

    def _stored(self, nodes: tuple[Node, ...]) -> BlockStored:
        parent, salt = nodes[0].parent, nodes[0].salt
        name = self._names.get(salt_parts(salt)[0] or "")
        keys = [
            tuple(name or value if kind == "lora" else value for kind, value in each)
            for each in [block_keys(one.salt, is_first=one.parent is None) for one in nodes]
        ]
        return BlockStored(
            block_hashes=[self._hash(node) for node in nodes],
            parent_block_hash=None if parent is None else self._hash(parent),
            token_ids=[token for node in nodes for token in node.tokens],
            block_size=len(nodes[0].tokens),
            lora_id=None,
            medium=MEDIUM,
            lora_name=name,
            extra_keys=[each or None for each in keys],
            group_idx=0,
        )

    def _hash(self, node: Node) -> BlockHash:
        digest = self._digest(node)
        return int.from_bytes(digest[-8:], "big") if self._as_numbers else digest


class _Sender:
    """What the thread does: sends batches, and those that somebody has missed.

    Args:
        bell: A byte can be read from it when there is something to send. At its end all is sent.
    """

    def __init__(
        self,
        config: KVEventsConfig,
        words: _Words,
        queue: "Queue[tuple[float, list[KVEvent]]]",
        bell: int,
        context: Context,
        publisher: "zmq.Socket[bytes]",
        replay: "zmq.Socket[bytes] | None",
    ) -> None:
        self._words, self._queue, self._bell = words, queue, bell
        self._context, self._publisher, self._replay = context, publisher, replay
        self._topic, self._number = config.topic.encode(), 0
        self._kept: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_steps)
        self._encoder = msgspec.msgpack.Encoder()

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._bell, zmq.POLLIN)
        if self._replay is not None:
            poller.register(self._replay, zmq.POLLIN)
        try:
            open_ = True
            while open_:
                ready = dict(poller.poll())
                if self._replay in ready:
                    self._guarded(self._answer)
                if self._bell in ready:
                    open_ = bool(os.read(self._bell, 4096))
                    self._guarded(self._send_waiting)
        finally:
            os.close(self._bell)
            self._context.destroy(linger=LINGER_MS)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # the next batch may go; who counts sees that one is missing
            logger.exception("KV events were not published")

    def _send_waiting(self) -> None:
        with suppress(Empty):
            while True:
                ts, events = self._queue.get_nowait()
                number, self._number = self._number.to_bytes(8, "big"), self._number + 1
                written = self._encoder.encode(self._words.batch(ts, events))
                self._publisher.send_multipart((self._topic, number, written))
                self._kept.append((number, written))

    def _answer(self) -> None:
        """Sends whoever asks the batches from a number on, and says where they end."""
        assert self._replay is not None
        frames = self._replay.recv_multipart()
        if len(frames) != 3 or len(frames[2]) != 8:
            logger.warning("a request for KV events must be 8 bytes, got %s", shown(frames[1:]))
            return
        asker, empty, first = frames
        for number, written in self._kept:
            if number >= first:
                self._replay.send_multipart((asker, empty, self._topic, number, written))
        self._replay.send_multipart((asker, empty, b"", END, b""))


def open_publisher(
    config: KVEventsConfig | None, algorithm: Algorithm, rank: int, *, prefix_caching: bool
) -> KVEventPublisher | None:
    """The publisher that the settings ask for.

    Raises:
        ConfigError: As `KVEventPublisher`.
    """
    if config is None or not config.is_on:
        return None
    if not prefix_caching:
        logger.warning("kv_events_config: without enable_prefix_caching there are no events")
    return KVEventPublisher(config, algorithm, rank)


def _open_sockets(
    context: Context, config: KVEventsConfig, rank: int
) -> "tuple[zmq.Socket[bytes], zmq.Socket[bytes] | None]":
    publisher = context.socket(zmq.PUB)
    publisher.set_hwm(config.hwm)
    address = address_of(config.endpoint, rank)
    if "*" in address or "::" in address or not address.startswith("tcp://"):
        _bind(publisher, "endpoint", address)
    else:
        publisher.connect(address)
    if config.replay_endpoint is None:
        return publisher, None
    replay = context.socket(zmq.ROUTER)
    replay.set_hwm(2 * (config.buffer_steps + 1))  # all that is kept must fit
    _bind(replay, "replay_endpoint", address_of(config.replay_endpoint, rank))
    return publisher, replay


def _bind(socket: "zmq.Socket[bytes]", name: str, address: str) -> None:
    if "::" in address or "[" in address:
        socket.setsockopt(zmq.IPV6, 1)
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise ConfigError(
            f"kv_events_config: {name} {shown(address)} cannot be bound ({error}): give another "
            "address, or end what uses it"
        ) from None


def _hashes_are_numbers(value: str | None) -> bool:
    """Whether hashes are sent as their last 64 bits, as vLLM's variable says; else as bytes.

    Raises:
        ConfigError: It is no number.
    """
    try:
        return bool(int("1" if value is None else value))
    except ValueError:
        raise ConfigError(
            f"the variable {HASHES_VARIABLE} must be 0 or 1, got {shown(value)}"
        ) from None


def _end(bell: int, lock: threading.Lock, thread: threading.Thread) -> None:
    """Closes the bell, and waits until the thread has sent what was left."""
    with lock:
        os.close(bell)
    thread.join(TERM_S)
