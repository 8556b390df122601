"""I21: what can never finish is refused, with both numbers, and leaves no trace."""

from typing import Any

import pytest

from jax_engine.core import BlockManager, Scheduler
from jax_engine.errors import ConfigError, InvalidRequestError, RequestTooLargeError
from tests.core.build import make_group, make_scheduler, step


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        (32, {}, "has 32 tokens, max_model_len 32 allows 31"),
        (2, {"n": 9}, "asks for 9 sequences, max_num_seqs is 8"),
        # 30 tokens in 15 blocks, and 1 of head-room, is what just fits 16
        (20, {"max_tokens": 12}, "may need 17 KV blocks .*num_gpu_blocks 16"),
        # 1 shared prompt block, 3 times 4 more, 3 of head-room
        (3, {"n": 2, "best_of": 3, "max_tokens": 8}, "may need 16 KV blocks .*num_gpu_blocks 15"),
    ],
)
def test_i21_too_large(prompt: int, params: dict[str, Any], message: str) -> None:
    scheduler = make_scheduler(15 if "best_of" in params else 16)
    with pytest.raises(RequestTooLargeError, match=f"request 'big'.*{message}"):
        scheduler.add_group(make_group("big", prompt, **params))
    assert not scheduler.has_unfinished() and not scheduler.waiting and not scheduler.groups
    scheduler.add_group(make_group("small"))
    assert scheduler.groups["small"].seqs[0].seq_id == 0


@pytest.mark.parametrize(
    ("prompt", "params"),
    [(31, {"max_tokens": 1}), (20, {"max_tokens": 11}), (3, {"n": 3, "max_tokens": 8})],
)
def test_i20_what_just_fits_finishes(prompt: int, params: dict[str, Any]) -> None:
    scheduler = make_scheduler(17 if prompt == 31 else 16)
    scheduler.add_group(make_group("limit", prompt, **params))
    steps = 0
    while scheduler.has_unfinished():
        assert step(scheduler).scheduled
        steps += 1
    assert steps == params["max_tokens"]


def test_the_watermark_counts() -> None:
    blocks = BlockManager(2, 20, watermark=0.2)
    scheduler = Scheduler(blocks, max_num_seqs=1, max_num_batched_tokens=8, max_model_len=64)
    scheduler.add_group(make_group("a", 10, max_tokens=21))  # 15 blocks, 1, 4
    with pytest.raises(RequestTooLargeError, match="may need 21 KV blocks"):
        scheduler.add_group(make_group("b", 10, max_tokens=22))


def test_without_max_tokens_a_request_may_fill_the_model() -> None:
    with pytest.raises(RequestTooLargeError, match="max_tokens None may need 17 KV blocks"):
        make_scheduler(16).add_group(make_group("a", max_tokens=None))
    make_scheduler(17).add_group(make_group("a", max_tokens=None))


def test_an_empty_prompt_and_a_taken_name_are_refused() -> None:
    scheduler = make_scheduler()
    with pytest.raises(InvalidRequestError, match="at least 1 token, got 0"):
        scheduler.add_group(make_group("a", 0))
    scheduler.add_group(make_group("a"))
    with pytest.raises(InvalidRequestError, match="'a' belongs to a request that is not finished"):
        scheduler.add_group(make_group("a"))
    assert len(scheduler.waiting) == 1
    scheduler.abort("a")
    scheduler.add_group(make_group("a"))


def test_checking_adds_nothing() -> None:
    scheduler = make_scheduler()
    scheduler.check_group(make_group("a"))
    with pytest.raises(RequestTooLargeError):
        scheduler.check_group(make_group("b", 40))
    assert not scheduler.has_unfinished()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1, got 0"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens must be at least 1"),
        ({"max_num_batched_tokens": 31, "scheduling": "sosp"}, "31 is below max_model_len 32"),
        ({"max_num_batched_tokens": 31, "enable_chunked_prefill": False}, "below max_model_len"),
        ({"max_num_seqs": 33, "scheduling": "sosp-mixed"}, "32 is below max_num_seqs 33"),
        ({"caching": True, "scheduling": "sosp"}, "enable_prefix_caching=True needs"),
        ({"long_prefill_token_threshold": -1}, "must be at least 0, got -1"),
        (
            {"long_prefill_token_threshold": 4, "enable_chunked_prefill": False},
            "long_prefill_token_threshold 4 needs",
        ),
    ],
)
def test_settings_that_contradict_each_other(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_scheduler(**changes)
