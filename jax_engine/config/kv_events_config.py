"""`KVEventsConfig`: where an engine tells routers which blocks its prefix cache holds."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from jax_engine.checks import check_types, shown, suggestion
from jax_engine.errors import ConfigError

Publisher = Literal["null", "zmq"]
MAX_KEPT = 2**24
_ADDRESSES = ("tcp://", "ipc://", "inproc://")


@dataclass(frozen=True, kw_only=True)
class KVEventsConfig:
    """What is published of the prefix cache, with vLLM's names and defaults.

    Attributes:
        enable_kv_cache_events: Whether blocks that come and go are told at all.
        publisher: "zmq": over ZeroMQ; "null": nobody is told. None: "zmq" if events are enabled.
        endpoint: Where batches are published (PUB). An address with `*` or `::`, and one of ipc or
            inproc, is bound; any other is connected to. Engine i of several takes a TCP port i
            above the one that is given.
        replay_endpoint: Where batches that were missed are asked for (ROUTER), bound; None:
            nowhere.
        buffer_steps: How many batches are kept for that.
        hwm: How many batches wait for a slow subscriber before it misses some.
        max_queue_size: How many batches wait for the publisher's thread before a step waits.
        topic: The first frame of each message, by which subscribers choose.

    Raises:
        ConfigError: A field is out of range.
    """

    enable_kv_cache_events: bool = False
    publisher: Publisher | None = None
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""

    def __post_init__(self) -> None:
        check_types(self, ConfigError, "kv_events_config: ")
        for name in ("buffer_steps", "hwm", "max_queue_size"):
            value = getattr(self, name)
            if not 1 <= value <= MAX_KEPT:
                raise ConfigError(
                    f"kv_events_config: {name} must be in [1, {MAX_KEPT}], got {shown(value)}"
                )
        for name in ("endpoint", "replay_endpoint"):
            value = getattr(self, name)
            if value is not None and not value.startswith(_ADDRESSES):
                raise ConfigError(
                    f"kv_events_config: {name} must begin with {' or '.join(_ADDRESSES)}, "
                    f"got {shown(value)}"
                )
            if value is not None and value.startswith("tcp://"):
                _check_port(name, value)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From a mapping of fields. Raises ConfigError if a key is none of them."""
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"kv_events_config: {shown(name)} is no key of it{suggestion(name, known)}"
                )
        return cls(**given)

    @property
    def is_on(self) -> bool:
        """Whether events are published."""
        return self.enable_kv_cache_events and self.publisher != "null"


def address_of(endpoint: str, rank: int) -> str:
    """The address of engine `rank` (from 0) of several that were given the same one."""
    if not rank:
        return endpoint
    if not endpoint.startswith("tcp://"):
        return f"{endpoint}_dp{rank}"
    host, _, port = endpoint.rpartition(":")
    return f"{host}:{int(port) + rank if int(port) else 0}"


def _check_port(name: str, value: str) -> None:
    port = value.rpartition(":")[2]
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise ConfigError(
            f"kv_events_config: {name} must end with a port, as in tcp://*:5557, got {shown(value)}"
        )
