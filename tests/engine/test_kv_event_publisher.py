"""Events reach subscribers in vLLM's bytes; what was missed can be asked for."""

import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import zmq

from jax_engine import LLM, ConfigError, SamplingParams
from jax_engine.config.engine_config import EngineConfig
from jax_engine.config.kv_events_config import KVEventsConfig, address_of
from jax_engine.core.kv_events import BlockEvicted, BlocksStored, CacheCleared, KVEvent
from jax_engine.core.prefix_cache import Node
from jax_engine.engine.kv_event_publisher import (
    EventBatch,
    KVEventPublisher,
    _bind,
    open_publisher,
)
from tests.support import tiny_llama as tiny
from tests.support.patience import HANG_S, until

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "kv_events.json").read_text("utf-8"))
FIRST = Node(None, (1, 2, 300, 70000), "s")
SECOND = Node(FIRST, (5, 6, 7, 2**31), "s")
EVENTS: list[KVEvent] = [BlocksStored((FIRST, SECOND)), BlockEvicted(FIRST), CacheCleared()]
MS = int(HANG_S * 1000)


class Subscriber:
    """A router's two sockets."""

    def __init__(self, config: KVEventsConfig, rank: int = 0) -> None:
        self._context = zmq.Context()
        self.sub = self._context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.SUBSCRIBE, config.topic.encode())
        self.sub.connect(address_of(config.endpoint, rank).replace("*", "127.0.0.1"))
        self.ask = self._context.socket(zmq.DEALER)
        if config.replay_endpoint:
            self.ask.connect(address_of(config.replay_endpoint, rank).replace("*", "127.0.0.1"))

    def next(self) -> tuple[bytes, int, bytes]:
        assert self.sub.poll(MS), "no batch has come"
        topic, number, batch = self.sub.recv_multipart()
        return topic, int.from_bytes(number, "big"), batch

    def replay(self, first: int) -> Iterator[tuple[bytes, int, bytes]]:
        self.ask.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            assert self.ask.poll(MS), "no end has come"
            _, topic, number, batch = self.ask.recv_multipart()
            if number == b"\xff" * 8:
                assert (topic, batch) == (b"", b"")
                return
            yield topic, int.from_bytes(number, "big"), batch

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def config(tmp_path: Path) -> KVEventsConfig:
    return KVEventsConfig(
        enable_kv_cache_events=True,
        endpoint=f"ipc://{tmp_path}/events",
        replay_endpoint=f"ipc://{tmp_path}/replay",
        topic="kv@here",
        buffer_steps=3,
    )


@pytest.fixture
def subscriber(config: KVEventsConfig) -> Iterator[Subscriber]:
    made = Subscriber(config)
    yield made
    made.close()


def joined(publisher: KVEventPublisher, subscriber: Subscriber) -> int:
    """Publishes until the subscriber gets something, as PUB sends to nobody; its number."""
    while not subscriber.sub.poll(20):
        publisher.publish([CacheCleared()])
    while subscriber.sub.poll(100):
        _, number, _ = subscriber.next()
    return number


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_a_batch_has_vllm_s_bytes(
    algorithm: Any,
    config: KVEventsConfig,
    subscriber: Subscriber,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    for node in (FIRST, SECOND):
        node.digest = None
    publisher = KVEventPublisher(config, algorithm)
    number = joined(publisher, subscriber)
    monkeypatch.setattr(time, "time", lambda: 12.5)
    publisher.publish(EVENTS)
    assert subscriber.next() == (
        b"kv@here",
        number + 1,
        bytes.fromhex(GOLDEN[f"{algorithm}.batch"]),
    )
    publisher.close()


def test_what_was_missed_is_sent_again(config: KVEventsConfig, subscriber: Subscriber) -> None:
    publisher = KVEventPublisher(config, "sha256")
    last = joined(publisher, subscriber)
    publisher.publish(EVENTS)
    sent = [subscriber.next()]
    publisher.publish(EVENTS[:1])
    sent.append(subscriber.next())
    assert [number for _, number, _ in sent] == [last + 1, last + 2]
    assert list(subscriber.replay(last + 1)) == sent
    assert list(subscriber.replay(last + 3)) == []
    assert [number for _, number, _ in subscriber.replay(0)] == [last, last + 1, last + 2]  # 3 kept
    subscriber.ask.send_multipart([b"", b"no number"])  # is no request, and ends nothing
    subscriber.ask.send_multipart([b"a", b"b", b"c", b"d"])
    assert list(subscriber.replay(last + 2)) == sent[1:]
    publisher.close()


def test_adapters_have_their_names(config: KVEventsConfig, subscriber: Subscriber) -> None:
    publisher = KVEventPublisher(config, "sha256", rank=0)
    joined(publisher, subscriber)
    publisher.name_adapter("0a", "mine")
    named, unnamed = Node(None, (1, 2), ("0a", "salt")), Node(None, (1, 2), ("0b", None))
    publisher.publish([BlocksStored((named, Node(named, (3, 4), ("0a", "salt"))))])
    publisher.publish([BlocksStored((unnamed,))])
    batches = [msgspec.msgpack.decode(subscriber.next()[2], type=EventBatch) for _ in range(2)]
    found: list[Any] = [one for batch in batches for one in batch.events]
    assert [one.lora_name for one in found] == ["mine", None]
    assert [one.extra_keys for one in found] == [[("mine", "salt"), ("mine",)], [("0b",)]]
    publisher.close()


def test_hashes_may_be_bytes(
    config: KVEventsConfig, subscriber: Subscriber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "0")
    publisher = KVEventPublisher(config, "sha256")
    joined(publisher, subscriber)
    publisher.publish([BlocksStored((Node(None, (1, 2), None),))])
    _, events, _ = msgspec.msgpack.decode(subscriber.next()[2])
    assert [len(one) for one in events[0]["block_hashes"]] == [32]
    publisher.close()
    monkeypatch.setenv("VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES", "yes")
    with pytest.raises(ConfigError, match="must be 0 or 1, got 'yes'"):
        KVEventPublisher(config, "sha256")


def test_nothing_is_left_behind(config: KVEventsConfig) -> None:
    """The thread and the addresses go with the publisher, even if nobody closes it."""
    before = set(threading.enumerate())
    for _ in range(3):
        publisher = KVEventPublisher(config, "sha256")
        publisher.publish(EVENTS)
        assert all(one.daemon for one in set(threading.enumerate()) - before), "Python may end"
        del publisher
        until(lambda: not set(threading.enumerate()) - before)
    publisher = KVEventPublisher(config, "sha256")
    publisher.close()
    publisher.publish(EVENTS)  # to nobody, and without waiting
    assert not set(threading.enumerate()) - before


def test_an_engine_does_not_wait_for_a_thread_that_has_much_to_send(
    config: KVEventsConfig,
) -> None:
    """The bell holds so many rings; more of them say nothing new."""
    publisher = KVEventPublisher(config, "sha256")
    assert not os.get_blocking(publisher._bell)
    publisher.close()


def test_where_one_address_is_taken_the_other_one_is_freed(
    config: KVEventsConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error would else keep it, as long as somebody looks at that."""
    made = zmq.Context()
    monkeypatch.setattr(zmq, "Context", lambda: made)
    wrong = replace(config, replay_endpoint="ipc:///no/folder/is/here")
    with pytest.raises(ConfigError, match=r"replay_endpoint .* cannot be bound"):
        KVEventPublisher(wrong, "sha256")
    assert made.closed


@pytest.mark.parametrize("closed", [True, False])
def test_what_nobody_would_send_is_not_queued(config: KVEventsConfig, closed: bool) -> None:
    """The publisher is closed, or its thread has died: a full queue would never have room."""
    publisher = KVEventPublisher(config, "sha256")
    queue, mine = publisher._queue, Queue[Any]()
    publisher._queue = mine  # which the thread does not empty
    if closed:
        publisher.close()
    publisher._thread = SimpleNamespace(is_alive=lambda: closed)  # type: ignore[assignment]
    publisher.publish(EVENTS)
    assert mine.empty() and queue.empty()
    publisher.close()


def test_where_nothing_has_changed_nothing_is_sent(config: KVEventsConfig) -> None:
    publisher = KVEventPublisher(config, "sha256")
    publisher._queue = Queue()
    publisher.publish([])
    assert publisher._queue.empty()
    publisher.close()


def test_a_full_queue_waits_for_the_thread_and_no_longer(config: KVEventsConfig) -> None:
    publisher = KVEventPublisher(KVEventsConfig(
        enable_kv_cache_events=True, endpoint=config.endpoint, max_queue_size=1
    ), "sha256")  # fmt: skip
    for _ in range(200):
        publisher.publish(EVENTS)
    publisher.close()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"endpoint": "5557"},
            "endpoint must begin with tcp:// or ipc:// or inproc://, got '5557'",
        ),
        ({"endpoint": "tcp://*"}, r"endpoint must end with a port, as in tcp://\*:5557"),
        ({"replay_endpoint": "tcp://*:70000"}, "replay_endpoint must end with a port"),
        ({"buffer_steps": 0}, r"buffer_steps must be in \[1, 16777216\], got 0"),
        ({"hwm": -1}, r"hwm must be in \[1, 16777216\], got -1"),
        ({"max_queue_size": 2**40}, "max_queue_size must be in"),
        ({"publisher": "kafka"}, "publisher must be"),
        ({"endpoints": "tcp://*:1"}, "'endpoints' is no key of it.*endpoint"),
        ({"topic": 3}, "topic must be"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"kv_events_config: {message}"):
        EngineConfig(kv_events_config={"enable_kv_cache_events": True} | wrong)  # type: ignore[arg-type]


def test_an_address_that_is_taken_is_named_before_the_model_loads() -> None:
    with zmq.Context() as context, context.socket(zmq.PUB) as other:
        port = other.bind_to_random_port("tcp://*")
        taken = KVEventsConfig(enable_kv_cache_events=True, endpoint=f"tcp://*:{port}")
        with pytest.raises(ConfigError, match=f"endpoint 'tcp://\\*:{port}' cannot be bound"):
            LLM("/no/model/is/here", kv_events_config=taken)


def test_who_publishes() -> None:
    on = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    for quiet in (None, KVEventsConfig(), on):
        assert open_publisher(quiet, "sha256", 0, prefix_caching=True) is None


@pytest.mark.parametrize(
    ("endpoint", "second"),
    [
        ("tcp://*:5557", "tcp://*:5558"),
        ("tcp://[::1]:80", "tcp://[::1]:81"),
        ("tcp://*:0", "tcp://*:0"),
        ("ipc:///tmp/x", "ipc:///tmp/x_dp1"),
    ],
)
def test_each_engine_of_several_has_an_address_of_its_own(endpoint: str, second: str) -> None:
    assert address_of(endpoint, 0) == endpoint
    assert address_of(endpoint, 1) == second


@pytest.mark.parametrize(
    ("address", "is_ipv6"),
    [
        ("tcp://*:5557", False),
        ("tcp://127.0.0.1:5557", False),
        ("ipc:///tmp/x", False),
        ("tcp://[::1]:80", True),
        ("tcp://::1:80", True),
        ("tcp://[1:2:3:4:5:6:7:8]:80", True),
    ],
)
def test_addresses_of_ipv6(address: str, is_ipv6: bool) -> None:
    """A socket has these only if it is told before it is bound."""
    told: list[Any] = []
    socket: Any = SimpleNamespace(setsockopt=lambda *option: told.append(option), bind=told.append)
    _bind(socket, "endpoint", address)
    assert told == [(zmq.IPV6, 1)] * is_ipv6 + [address]


def test_an_engine_tells_what_its_prompts_could_hit(
    tmp_path: Path, config: KVEventsConfig, subscriber: Subscriber
) -> None:
    """Blocks are told as requests fill them, as others take them, and at the end all at once."""
    path, _ = tiny.tiny_llama(tmp_path / "model")
    llm = LLM(
        str(path), skip_tokenizer_init=True, block_size=4, num_gpu_blocks_override=8,
        max_model_len=24, swap_space=0, kv_events_config=config,
    )  # fmt: skip
    engine = llm.llm_engine
    assert engine._publisher is not None
    joined(engine._publisher, subscriber)
    params = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True, detokenize=False)
    for first in range(6):
        llm.generate({"prompt_token_ids": [first, 1, 2, 3, 4, 5, 6, 7, 8]}, params, use_tqdm=False)
    assert llm.reset_prefix_cache()
    known: dict[int, tuple[int, ...]] = {}
    kinds = []
    while "AllBlocksCleared" not in kinds:
        _, events, rank = msgspec.msgpack.decode(subscriber.next()[2])
        assert rank == 0
        for one in events:
            kinds.append(one["type"])
            if one["type"] == "BlockStored":
                assert one["block_size"] == 4
                tokens = iter(one["token_ids"])
                for name in one["block_hashes"]:
                    known[name] = tuple(next(tokens) for _ in range(4))
                assert list(tokens) == []
            elif one["type"] == "BlockRemoved":
                for name in one["block_hashes"]:
                    del known[name]
    assert kinds.count("BlockRemoved") > 3
    assert (5, 1, 2, 3) in known.values()
    assert (4, 5, 6, 7) in known.values()
