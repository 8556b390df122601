"""I21: what can never finish is refused, with both numbers, and leaves no trace."""

from typing import Any

import pytest

from jax_engine.core import BlockManager, Scheduler
from jax_engine.errors import ConfigError, InvalidRequestError, RequestTooLargeError
from tests.core.build import make_group, make_scheduler, step

BEAMS = {"use_beam_search": True, "length_penalty": 1.0, "early_stopping": False}


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        (32, {}, "has 32 tokens, max_model_len 32 allows 31"),
        (2, {"n": 9, **BEAMS}, "asks for 9 beams, max_num_seqs is 8"),
        # 30 tokens in 15 blocks, and 1 of head-room, is what just fits 16
        (20, {"max_tokens": 12}, "a sample .* may need 17 KV blocks .*num_gpu_blocks 16"),
        (20, {"max_tokens": 12, "n": 7}, "a sample .* may need 17 KV blocks .*num_gpu_blocks 16"),
        # 1 shared prompt block, 3 times 4 more, 3 of head-room
        (
            3,
            {"n": 2, "best_of": 3, "max_tokens": 8, **BEAMS},
            "3 beams .* may need 16 KV blocks .*num_gpu_blocks 15: lower max_tokens or best_of",
        ),
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


@pytest.mark.parametrize(
    ("num_blocks", "prompt", "params", "part_size"),
    [
        (16, 3, {"n": 3, "max_tokens": 8}, 3),  # 1 shared, 3 times 4 and 1: exactly 16
        (15, 3, {"n": 3, "max_tokens": 8}, 2),
        (16, 20, {"n": 2, "max_tokens": 11}, 1),
        (99, 2, {"n": 20, "max_tokens": 3}, 8),  # max_num_seqs
        (99, 2, {"n": 1, "best_of": 9, "max_tokens": 3}, 8),
        (99, 2, {"n": 5, "max_tokens": 3}, 5),
    ],
)
def test_samples_run_in_the_largest_parts_that_fit(
    num_blocks: int, prompt: int, params: dict[str, Any], part_size: int
) -> None:
    """I20: each part is a group that fits by itself; and the last one is the rest."""
    scheduler = make_scheduler(num_blocks)
    group = make_group("parts", prompt, **params)
    scheduler.add_group(group)
    assert group.part_size == part_size
    sizes = []
    while scheduler.has_unfinished():
        sizes += [item.num_samples for item in step(scheduler).scheduled if item.start == 0]
    whole, rest = divmod(group.num_samples, part_size)
    assert sizes == [part_size] * whole + [rest] * (rest > 0)
    assert [seq.index for seq in group.seqs] == list(range(group.num_samples))
    assert {seq.output_len for seq in group.seqs} == {params["max_tokens"]}
    assert scheduler.block_manager.num_free_gpu_blocks == num_blocks


def test_a_part_takes_its_request_s_place_in_the_queue() -> None:
    """The next part is older than who came later, so it is admitted first; nobody is overtaken."""
    scheduler = make_scheduler(40, max_num_seqs=2)
    scheduler.add_group(make_group("parts", n=5, max_tokens=2))
    scheduler.add_group(make_group("later", max_tokens=2))
    admitted = []
    while scheduler.has_unfinished():
        plan = step(scheduler).scheduled
        admitted += [(item.group.request_id, item.seq.index) for item in plan if item.start == 0]
    assert admitted == [("parts", 0), ("parts", 2), ("parts", 4), ("later", 0)]


@pytest.mark.parametrize("stop_from_outside", [False, True])
def test_no_part_starts_after_an_abort(stop_from_outside: bool) -> None:
    """I22: in the second part, however the first one ended; the ends of the first stay."""
    scheduler = make_scheduler(40, max_num_seqs=2)
    group = make_group("parts", n=6, max_tokens=3)
    scheduler.add_group(group)
    step(scheduler)
    if stop_from_outside:
        part = list(group.seqs)
        assert [scheduler.finish_sequence(seq, group, "stop", "word") for seq in part] == [
            False, False,
        ]  # fmt: skip
        assert not group.forked and group.leader.index == 2 and scheduler.waiting == [group]
        step(scheduler)
    else:
        for _ in range(3):
            step(scheduler)
    assert scheduler.abort("parts") and not scheduler.abort("parts")
    first = "stop" if stop_from_outside else "length"
    assert [seq.finish_reason for seq in group.seqs] == [first] * 2 + ["abort"] * 2
    assert not scheduler.has_unfinished() and not scheduler.waiting and not scheduler.running
    assert scheduler.block_manager.num_free_gpu_blocks == 40


def test_a_prompt_that_is_pooled_may_fill_the_model() -> None:
    """I20, I21: the token that ends it is dropped, and needs no slot."""
    scheduler = make_scheduler(17)
    with pytest.raises(RequestTooLargeError, match="33 tokens, max_model_len 32 allows 32: short"):
        scheduler.add_group(make_group("big", 33, max_tokens=1, drops_output=True))
    group = make_group("fits", 32, max_tokens=1, drops_output=True)
    scheduler.add_group(group)
    while scheduler.has_unfinished():
        assert step(scheduler).scheduled
    assert group.seqs[0].finish_reason == "length"
    assert scheduler.block_manager.num_free_gpu_blocks == 17


def test_the_watermark_counts() -> None:
    blocks = BlockManager(2, 20, watermark=0.2)
    scheduler = Scheduler(blocks, max_num_seqs=1, max_num_batched_tokens=8, max_model_len=64)
    scheduler.add_group(make_group("a", 10, max_tokens=21))  # 15 blocks, 1, 4
    with pytest.raises(RequestTooLargeError, match="may need 21 KV blocks"):
        scheduler.add_group(make_group("b", 10, max_tokens=22))
    parts = make_group("parts", 4, n=3)  # 2 shared blocks; 5 a sample, of 14 without the watermark
    Scheduler(blocks, max_num_seqs=8, max_num_batched_tokens=8, max_model_len=64).add_group(parts)
    assert parts.part_size == 2


@pytest.mark.parametrize(
    ("max_tokens", "max_model_len"),
    [(None, 32), (None, 33), (1000, 32)],  # the last token by length needs no slot
)
def test_a_request_may_fill_the_model(max_tokens: int | None, max_model_len: int) -> None:
    group = make_group("a", max_tokens=max_tokens)
    with pytest.raises(RequestTooLargeError, match=f"{max_tokens} may need 17 KV blocks"):
        make_scheduler(16, max_model_len=max_model_len).add_group(group)
    make_scheduler(17, max_model_len=max_model_len).add_group(group)


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
        ({"max_num_batched_tokens": 31, "scheduling": "sosp"}, r"least max_model_len \(32\)"),
        (
            {"max_num_batched_tokens": 31, "enable_chunked_prefill": False},
            r"least max_model_len \(32\).* got 31",
        ),
        ({"max_num_seqs": 33, "scheduling": "sosp-mixed"}, r"least max_num_seqs \(33\).* got 32"),
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
