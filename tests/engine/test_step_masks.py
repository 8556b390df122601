"""Which tokens the samples of a step may be: each part of it, by hand, for 40 tokens."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jax_engine import InvalidRequestError, SamplingParams
from jax_engine.core.scheduler_output import SchedulerOutput
from jax_engine.core.sequence import NO_TOKEN
from jax_engine.engine.requests import masks as step_masks
from jax_engine.engine.requests.masks import (
    ConstrainedSamples,
    ConstraintBuilder,
    RequestConstraints,
    StepMasks,
    constrained_samples,
)
from jax_engine.sampling.masked_steps import as_booleans, token_bits

VOCAB = 40
EVERYTHING = range(VOCAB)
PROMPT = [1, 2]


class Group:
    """A request, as the masks see one."""

    has_embeds = False

    def __init__(self, name: str, number: int, *, beam: Any = None) -> None:
        self.request_id, self.number, self.beam, self.prompt_len = name, number, beam, 2

    def unfinished(self) -> str:
        return f"unfinished of {self.request_id}"


def samples_of(
    group: Any, output: list[int], samples: slice, *, pending: bool = False, **constraints: Any
) -> ConstrainedSamples:
    """Args:
    pending: Whether a token of the output is not known yet.
    constraints: Fields of `RequestConstraints`; `allowed` and `ends` as token ids.
    """
    given: dict[str, Any] = {"allowed": EVERYTHING, "ends": [], "min_tokens": 0, "bad_words": [],
                             "processors": [], "guide": None} | constraints  # fmt: skip
    given |= {name: token_bits(given[name], VOCAB) for name in ("allowed", "ends")}
    seq = SimpleNamespace(
        output_token_ids=output,
        token_ids=PROMPT + output,
        num_tokens=len(PROMPT) + len(output) + pending,
    )
    item: Any = SimpleNamespace(seq=seq, group=group)
    return ConstrainedSamples(item, RequestConstraints(**given), samples)


def allowed(masks: StepMasks) -> list[set[int]]:
    return [set(np.flatnonzero(as_booleans(row, VOCAB)).tolist()) for row in masks.allowed()]


def test_samples_of_requests_with_constraints() -> None:
    """One each, n of a prompt about to fork, none of a chunk; others count but are left out."""
    own = samples_of(Group("a", 8), [], slice(0, 1)).constraints
    items: list[Any] = [
        SimpleNamespace(
            group=SimpleNamespace(constraints=one, num_free=0),
            num_samples=count,
            num_draws=count,
            drafts=(),
        )
        for one, count in [(None, 1), (own, 2), (own, 0), (None, 3), (own, 1)]
    ]
    found = constrained_samples(SchedulerOutput(items))
    assert [(one.item, one.constraints, one.samples) for one in found] == [
        (items[1], own, slice(1, 3)),
        (items[4], own, slice(6, 7)),
    ]
    assert constrained_samples(SchedulerOutput([items[0], items[3]])) == []
    (found_alone,) = constrained_samples(SchedulerOutput([items[1]]))
    assert found_alone.samples == slice(0, 2)


def test_allowed_tokens_and_bad_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of a request are limited; those of others are not. llguidance may be missing."""
    monkeypatch.setattr(step_masks, "fill_masks", None)
    group: Any = Group("a", 0)
    bad = [[5, 33], [6, 34], [4, 5, 39]]
    parts = [
        samples_of(group, [4, 5], slice(1, 3), allowed=[0, 31, 32, 33, 34, 39], bad_words=bad),
        samples_of(Group("b", 1), [], slice(4, 5), allowed=[39]),
    ]
    masks = StepMasks(parts, 5, VOCAB)
    own = {0, 31, 32, 34}
    assert allowed(masks) == [set(EVERYTHING), own, own, set(EVERYTHING), {39}]
    assert not masks.failed and masks.seconds > 0


def test_seconds_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 12.0, 20.0, 23.0])
    monkeypatch.setattr(step_masks.time, "perf_counter", lambda: next(times))
    masks = StepMasks([samples_of(Group("a", 0), [], slice(0, 1))], 1, VOCAB)
    masks.allowed()
    masks.allowed()
    assert masks.seconds == 5.0


@pytest.mark.parametrize(
    ("output_len", "pending", "stuck"), [(0, False, True), (1, False, False), (0, True, False)]
)
def test_a_request_fails_if_nothing_is_left(output_len: int, pending: bool, stuck: bool) -> None:
    """Ends do not count before `min_tokens`; a token that is on its way is one of the output."""
    group: Any = Group("a", 0)
    given: dict[str, Any] = {"allowed": [0], "ends": [0, 7], "min_tokens": 1}
    masks = StepMasks(
        [samples_of(group, [7] * output_len, slice(0, 1), pending=pending, **given)], 1, VOCAB
    )
    assert allowed(masks) == [{0}], "the sampler forbids the ends"
    assert masks.failed == ({group: NO_TOKEN} if stuck else {})


def test_a_beam_may_die() -> None:
    beams: Any = Group("a", 0, beam=object())
    masks = StepMasks([samples_of(beams, [], slice(0, 1), allowed=[])], 1, VOCAB)
    assert allowed(masks) == [set()] and not masks.failed


class Guide:
    """Gives its matchers, and notes what for."""

    def __init__(self, asked: list[Any], *matchers: "Matcher") -> None:
        self._asked, self._matchers = asked, matchers

    def matchers(self, seqs: list[Any], unfinished: str) -> Any:
        self._asked.append(([one.output_token_ids for one in seqs], unfinished))
        return self._matchers


class Matcher:
    """What a guide allows; or it is broken."""

    def __init__(self, tokens: list[int], error: str = "") -> None:
        self.tokens, self.error = tokens, error

    def is_error(self) -> bool:
        return bool(self.error)

    def get_error(self) -> str:
        return f"{self.error}\nand more"


def test_guides_are_asked_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question has all sequences of a request. What is forbidden otherwise stays forbidden."""
    asked: list[Any] = []

    def fill(pairs: list[tuple[Matcher, int]], mask: np.ndarray) -> None:
        for matcher, row in pairs:
            mask[row] = token_bits(matcher.tokens, VOCAB)

    monkeypatch.setattr(step_masks, "fill_masks", fill)
    both = Guide(asked, Matcher([1, 2, 35]), Matcher([2, 3]))
    broken = Guide(asked, Matcher([5], "too many states"))
    group: Any = Group("a", 0)
    other: Any = Group("b", 1)
    parts = [
        samples_of(group, [1], slice(0, 1), guide=both, allowed=[2, 3, 35]),
        samples_of(other, [], slice(1, 3), guide=broken),
        samples_of(group, [2], slice(3, 4), guide=both),
    ]
    masks = StepMasks(parts, 4, VOCAB)
    assert allowed(masks) == [{2, 35}, {5}, {5}, {2, 3}]
    assert asked == [([[1], [2]], "unfinished of a"), ([[]], "unfinished of b")]
    assert masks.failed == {other: "its grammar failed: too many states"}


def test_processors_edit_the_rows_of_their_own_request() -> None:
    """They see prompt and output; one that raises ends its request, and the others go on."""
    seen: list[Any] = []

    def edit(prompt: list[int], output: list[int], logits: np.ndarray) -> np.ndarray:
        seen.append((prompt, output))
        return logits + 1

    def fail(*_: Any) -> np.ndarray:
        raise RuntimeError("mine")

    def forbid(_: Any, __: Any, logits: np.ndarray) -> np.ndarray:
        return np.where(np.arange(VOCAB) == 7, logits, -np.inf)

    failing: Any = Group("a", 0)
    stuck: Any = Group("b", 1)
    good: Any = Group("c", 2)
    parts = [
        samples_of(failing, [], slice(0, 1), processors=[fail]),
        samples_of(Group("d", 3), [], slice(1, 2)),
        samples_of(stuck, [], slice(2, 3), processors=[forbid], ends=[7], min_tokens=1),
        samples_of(good, [4, 5], slice(3, 5), processors=[edit, edit]),
        samples_of(Group("e", 4), [], slice(5, 6), processors=[forbid], ends=[7]),
    ]
    masks = StepMasks(parts, 6, VOCAB)
    logits = np.tile(np.arange(VOCAB, dtype=np.float32), (6, 1))
    edited = masks.process(lambda: logits, masks.allowed())
    assert edited is not None and logits[3, 0] == 0.0, "the worker's own stay as they are"
    np.testing.assert_array_equal(edited[:2], logits[:2])
    np.testing.assert_array_equal(edited[3:5], logits[3:5] + 2)
    for row in (2, 5):
        assert np.flatnonzero(edited[row] > -np.inf).tolist() == [7]
    assert seen == [(PROMPT, [4, 5])] * 2
    assert masks.failed == {
        failing: "a logits processor raised RuntimeError('mine')", stuck: NO_TOKEN,
    }  # fmt: skip


def test_tokens_that_are_forbidden_otherwise_do_not_count() -> None:
    """Nothing is left where a processor leaves only what the mask does not."""
    group: Any = Group("a", 0)
    only = [lambda prompt, output, logits: np.where(np.arange(VOCAB) == 7, logits, -np.inf)]
    masks = StepMasks([samples_of(group, [], slice(0, 1), processors=only, allowed=[6])], 1, VOCAB)
    masks.process(lambda: np.zeros((1, VOCAB), np.float32), masks.allowed())
    assert masks.failed == {group: NO_TOKEN}


def test_without_processors_the_logits_are_not_fetched() -> None:
    masks = StepMasks([samples_of(Group("a", 0), [], slice(0, 1))], 1, VOCAB)
    assert masks.process(lambda: pytest.fail("fetched"), masks.allowed()) is None


class Codes:
    """A tokenizer: a is 1, b is 2; 0 comes before a text that asks for special tokens."""

    vocab_size = 6

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [0] * add_special_tokens + [ord(one) - ord("a") + 1 for one in text.strip()]


def test_what_becomes_of_bad_words() -> None:
    """Single tokens are in the mask; what the model has no logits for never comes anyhow."""
    builder = ConstraintBuilder(Codes(), 4, frozenset([3]))
    single = builder.build(SamplingParams(bad_words=["a"]))
    assert single.bad_words == [] and not single.needs_last_token
    assert single.allowed.tolist() == [0b1101]
    longer = builder.build(SamplingParams(bad_words=["ab", "a", "d", "ad", "da", "abc"]))
    assert longer.bad_words == [[1, 2], [1, 2, 3]] and longer.needs_last_token
    assert longer.allowed.tolist() == [0b1101]
    assert builder.build(SamplingParams(bad_words=["d", "dd"])) is None
    with pytest.raises(InvalidRequestError, match="bad_words need text"):
        ConstraintBuilder(None, 4, frozenset([3])).build(SamplingParams(bad_words=["a"]))
    both = SamplingParams(bad_words=["ab"])
    both.bad_words_token_ids = [[2, 1], [3, 4]]
    assert builder.build(both).bad_words == [[2, 1]], "token ids say it already"
