"""What the worker asks of its cache and its steps, in which order, and what it hands on."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jax_engine.sampling.sampler import SamplerOutput
from jax_engine.sampling.sampling_inputs import ROW_WIDTH, SamplerStages
from jax_engine.step import Capabilities, Moves, RequestSetup, Row, Samples, Step
from jax_engine.worker import worker as module
from jax_engine.worker.step_output import PooledStates, StepOutput, Unsampled
from jax_engine.worker.step_shape import StepShape, all_step_shapes, step_shape
from jax_engine.worker.worker import Worker

MAX_ROWS, VOCABULARY = 16, 40
NOTHING = np.zeros((2, 0), np.int32)
MOVES = Moves([(1, 2)], [(3, 4)], [(5, 6)])


def sampled(first: int, rows: int = 4) -> SamplerOutput:
    """Tokens from `first` on, with numbers of their own in every place."""
    column = np.arange(rows)
    tokens = np.pad(first + column, (0, MAX_ROWS - rows)).astype(np.int32)
    top = column[:, None] + np.arange(3)
    return SamplerOutput(*map(jnp.asarray, (tokens, column / 2, column + 7, top + 9, -top / 4)))


class Steps:
    """A double of the compiled steps: gives what the test has put into `outputs`."""

    def __init__(self, done: list[Any]) -> None:
        self.done, self.outputs, self.compiled = done, list[StepOutput](), list[StepShape]()

    def __call__(self, shape: StepShape, cache: Any, packed: Any, previous: Any) -> Any:
        self.done.append(("step", shape, cache, np.asarray(previous).tolist()))
        return f"{cache}'", self.outputs.pop(0)

    def sample(self, unsampled: Unsampled, logits: Any, mask: Any, asks: Any) -> SamplerOutput:
        lists = [given if given is None else given.tolist() for given in (logits, mask)]
        self.done.append(("sample", *lists, asks))
        return sampled(30)

    def has(self, shape: StepShape) -> bool:
        return shape in self.compiled

    def prepare(self, shape: StepShape, cache: Any) -> None:
        self.done.append(("prepare", shape, cache))


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker on a cache and steps that note in `worker.done` what they are asked."""
    done: list[Any] = []

    def note(name: str) -> Any:
        return lambda *given: done.append((name, *given))

    moves = {name: note(name) for name in ("swap_in", "swap_out", "copy", "recover")}
    host = SimpleNamespace(make_room=lambda blocks: blocks == [3])
    cache = SimpleNamespace(array="cache", dtype="int8", host=host, **moves)
    monkeypatch.setattr(module, "KVCache", lambda *_, **given: cache)
    monkeypatch.setattr(module, "CompiledSteps", lambda *_, **given: Steps(done))
    worker: Any = Worker(
        SimpleNamespace(config=SimpleNamespace(vocab_size=VOCABULARY), mesh=None),  # type: ignore[arg-type]
        num_blocks=9,
        num_cpu_blocks=8,
        block_size=4,
        max_model_len=21,
        max_rows=MAX_ROWS,
        dtype="float32",
        cache_dtype="float32",
    )
    worker.done = done
    return worker


def setup(number: int, **changes: Any) -> RequestSetup:
    rows = np.zeros((1, ROW_WIDTH), np.int32)
    return RequestSetup(number, [1, 1], rows, NOTHING, NOTHING, **changes)


def step(
    *opened: RequestSetup, samples: int = 1, closed: tuple[int, ...] = (), **more: Any
) -> Step:
    """A prompt of two tokens for each, of which each draws so many tokens."""
    rows = [Row(one.number, one.number, 0, [1, 1]) for one in opened]
    last = [2 * i + 1 for i in range(len(rows)) for _ in range(samples)]
    drawn = Samples(last, [*range(samples)] * len(rows))
    tables = np.zeros((len(rows), 6), np.int32)
    return Step(
        rows,
        drawn,
        tables,
        more.pop("moves", Moves([], [], [])),
        list(opened),
        list(closed),
        **more,
    )


def unsampled(rows: int = 4) -> StepOutput:
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(rows, VOCABULARY)), jnp.float32)
    return StepOutput(unsampled=Unsampled(logits, None))  # type: ignore[arg-type]


def no_moves(done: list[Any]) -> list[Any]:
    return [one for one in done if one[0] not in ("swap_in", "swap_out", "copy")]


def test_its_sizes(worker: Any) -> None:
    """A table has room for the longest sequence: 21 tokens in blocks of 4."""
    wanted = Capabilities(VOCABULARY, 4, 9, 8, table_width=6, look_ahead_tokens=64, max_samples=16)
    assert worker.capabilities == wanted
    assert worker.host_room([3]) and not worker.host_room([3, 4])


@pytest.mark.parametrize("in_host_memory", [False, True])
def test_weights_come_with_the_scales_of_the_cache(
    worker: Any, monkeypatch: pytest.MonkeyPatch, in_host_memory: bool
) -> None:
    """On a CPU they are then moved to huge pages."""

    def scales_for(model: str, cache_dtype: str, **more: Any) -> tuple[Any, ...]:
        return model, cache_dtype, more

    gathered: list[Any] = []
    monkeypatch.setattr(module, "scales_for", scales_for)
    monkeypatch.setattr(module, "gather_in_background", gathered.append)
    monkeypatch.setattr(module, "addressable", lambda weights: weights)
    device = SimpleNamespace(in_host_memory=in_host_memory)
    monkeypatch.setattr(module, "this_device", lambda: device)
    monkeypatch.setattr(module, "LoadedModel", str)
    compared: list[Any] = []
    worker.steps.check_alike = compared.append
    worker.steps.set_weights = lambda *given: setattr(worker.steps, "weights", given)
    worker.set_weights("model")
    scales = "model", "int8", {"dtype": "float32", "max_model_len": 21}
    assert worker.steps.weights == ("model", scales) and compared == []
    assert gathered == [worker.steps.weights] * in_host_memory
    worker.set_weights(lambda: "read")  # in the process that has the device
    assert worker.steps.weights[0] == "read" and compared == ["read"]


def test_what_is_compiled_ahead_and_measured(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shapes of these limits; costs with the longest prompt."""
    monkeypatch.setattr(module, "compile_ahead", lambda *given, **more: (given, more))
    parts = worker.steps, worker.kv_cache
    shapes = all_step_shapes(33, 5)
    assert worker.compile_ahead(33, 5, use_tqdm=False) == (
        (*parts, VOCABULARY, shapes), {"use_tqdm": False}
    )  # fmt: skip
    monkeypatch.setattr(module, "measure_costs", lambda *given: given)
    assert worker.measure_costs() == (worker, *parts, 21)


def test_the_first_step_is_that_of_a_short_prompt(worker: Any) -> None:
    worker.prepare_first_step()
    assert worker.done == [("prepare", step_shape(2, 1, 1), "cache")]
    assert not step_shape(2, 1, 1).decode_only
    worker.steps.compiled.append(step_shape(2, 1, 1))
    worker.prepare_first_step()
    assert len(worker.done) == 1


def test_blocks_are_moved_before_the_model_writes(worker: Any) -> None:
    """They are moved even where there is nothing to compute."""
    moves = [("swap_in", [(1, 2)]), ("swap_out", [(3, 4)]), ("copy", [(5, 6)])]
    worker.steps.outputs.append(StepOutput(sampled=sampled(10)))
    worker.launch(step(setup(1), moves=MOVES))
    assert worker.done == [*moves, ("step", StepShape(32, 16), "cache", [0] * MAX_ROWS)]
    assert worker.kv_cache.array == "cache'"
    worker.done.clear()
    ticket = worker.launch(step(moves=MOVES))
    assert worker.done == moves
    found = worker.collect(ticket)
    assert found.token_ids == [] and found.logprobs is found.prompt is found.hidden is None
    assert ticket.num_samples == 0


def test_requests_are_known_until_they_are_closed(worker: Any) -> None:
    """The last step of one may be the one that closes it."""
    worker.steps.outputs += [StepOutput(sampled=sampled(10))] * 2
    one, two, three = setup(1), setup(2), setup(3)
    worker.launch(step(one, two, closed=(1, 77)))
    assert worker.setups == {2: two}
    worker.launch(step(three, closed=(3,)))
    worker.launch(step(closed=(2,)))
    assert worker.setups == {}


def test_tokens_of_the_last_step_that_drew_go_into_the_next(worker: Any) -> None:
    worker.steps.outputs += [StepOutput(sampled=sampled(n)) for n in (10, 20, 30)]
    for samples in (1, 0, 1):
        worker.launch(step(setup(1), samples=samples))
    worker.recover()
    worker.steps.outputs.append(StepOutput(sampled=sampled(40)))
    worker.launch(step(setup(1)))
    first = np.asarray(sampled(10).token_ids).tolist()
    previous = [one[-1] for one in no_moves(worker.done) if one[0] == "step"]
    assert previous == [[0] * MAX_ROWS, first, first, [0] * MAX_ROWS]


def test_after_a_failure_nothing_is_known(worker: Any) -> None:
    worker.steps.outputs.append(StepOutput(sampled=sampled(10)))
    worker.launch(step(setup(1)))
    worker.recover()
    assert worker.setups == {} and worker.done[-1] == ("recover",)


@pytest.mark.parametrize("wants", [False, True])
def test_log_probabilities_come_to_the_host_if_one_request_wants_them(
    wants: bool, worker: Any
) -> None:
    worker.steps.outputs.append(StepOutput(sampled=sampled(10)))
    ticket = worker.launch(step(setup(1), setup(2, wants_logprobs=wants), setup(3)))
    found = worker.collect(ticket)
    assert found.token_ids == [10, 11, 12] and found.prompt is found.hidden is found.logits is None
    if not wants:
        assert found.logprobs is None
        return
    whole = sampled(10)
    for name in ("logprobs", "ranks", "top_token_ids", "top_logprobs"):
        part = getattr(found.logprobs, name)
        assert isinstance(part, np.ndarray)
        np.testing.assert_array_equal(part, getattr(whole, name)[:3])


def test_prompts_and_states_come_whole(worker: Any) -> None:
    states = PooledStates(*(i * jnp.ones((4, 2)) for i in (1, 4, 2)), 3 * jnp.ones((8, 2)))
    output = StepOutput(sampled=sampled(10), prompt=sampled(20), pooled=states)
    worker.steps.outputs += [output] * 2
    for of_tokens in (False, True):
        asks = {"pooling": True, "is_special": True, "token_states": of_tokens}
        ticket = worker.launch(step(setup(1, **asks), setup(2)))
        found = worker.collect(ticket)
        np.testing.assert_array_equal(found.prompt.ranks, sampled(20).ranks)
        np.testing.assert_array_equal(found.hidden.total, states.total)
        np.testing.assert_array_equal(found.hidden.first, states.first)
        np.testing.assert_array_equal(found.hidden.last, states.last)
        if of_tokens:
            np.testing.assert_array_equal(found.hidden.tokens, states.tokens)
        else:
            assert found.hidden.tokens is None


def test_a_split_step_without_masks_is_sampled_at_once(worker: Any) -> None:
    """From the raw logits, which only then come to the host if a request wants them."""
    output = unsampled()
    raw = np.asarray(output.unsampled.logits)  # type: ignore[union-attr]
    for wants in (False, True):
        worker.steps.outputs.append(output)
        ticket = worker.launch(step(setup(1), setup(2, needs_logits=wants, is_special=True)))
        assert worker.done[-1] == ("sample", None, None, SamplerStages())
        found = worker.collect(ticket)
        assert found.token_ids == [30, 31]
        if wants:
            np.testing.assert_array_equal(found.logits, raw[:2])
        else:
            assert found.logits is None
    worker.steps.outputs.append(StepOutput(sampled=sampled(10)))
    ticket = worker.launch(step(setup(2, needs_logits=True), samples=0))
    assert worker.collect(ticket).logits is None, "nothing is drawn"


def test_a_masked_step_waits_for_its_masks(worker: Any) -> None:
    worker.steps.outputs += [unsampled(), StepOutput(sampled=sampled(50))]
    ticket = worker.launch(step(setup(1), setup(2), masked=True))
    assert ticket.sampled is None and no_moves(worker.done)[-1][0] == "step"
    raw = np.asarray(ticket.output.unsampled.logits)
    np.testing.assert_array_equal(worker.logits(ticket), raw[:2])
    allowed = np.array([[5, 1], [6, 2]], np.uint32)
    processed = np.arange(2 * VOCABULARY, dtype=np.float32).reshape(2, -1)
    worker.sample(ticket, allowed, processed)
    _, logits, mask, asks = worker.done[-1]
    assert asks == SamplerStages(), "plain rows ask for nothing"
    assert mask == [[5, 1], [6, 2], [2**32 - 1] * 2, [2**32 - 1] * 2]
    assert logits == [*processed.tolist(), [0.0] * VOCABULARY, [0.0] * VOCABULARY]
    found = worker.collect(ticket)
    assert found.token_ids == [30, 31] and found.logits is None
    worker.launch(step(setup(3)))
    assert worker.done[-1][-1][:2] == [30, 31]


def digest(worker: Any, rank: int, one: Step, tokens: int = 5) -> bytes:
    """What this rank tells of a step as its first, in which these tokens are drawn."""
    worker._rank, worker._launched = rank, 0
    worker.steps.outputs.append(StepOutput(sampled(tokens)))
    found: bytes = worker.collect(worker.launch(one)).digest
    return found


def test_all_ranks_tell_the_same_digest_of_a_step_and_another_of_another_one(worker: Any) -> None:
    one = step(setup(1), moves=MOVES)
    first = digest(worker, 0, one)
    assert first == digest(worker, 1, one) != b""
    others = {
        "number": _second(worker, one),
        "plan": digest(worker, 1, one._replace(block_tables=one.block_tables + 1)),
        "moves": digest(worker, 1, one._replace(moves=MOVES._replace(copy=[(5, 7)]))),
        "tokens": digest(worker, 1, one, tokens=6),
    }
    assert len({first, *others.values()}) == 5


def _second(worker: Any, one: Step) -> bytes:
    """The digest of a step as the second."""
    digest(worker, 1, one)
    worker.steps.outputs.append(StepOutput(sampled(5)))
    found: bytes = worker.collect(worker.launch(one)).digest
    return found


def test_after_a_failure_ranks_count_anew_and_only_the_first_has_results(worker: Any) -> None:
    one = step(setup(1), moves=MOVES)
    first = digest(worker, 0, one)
    worker.recover()
    worker.steps.outputs.append(StepOutput(sampled(5)))
    assert worker.collect(worker.launch(one)).digest == first
    for rank, tokens in ((0, [5]), (1, [])):
        worker._rank = rank
        worker.steps.outputs.append(StepOutput(sampled(5)))
        assert worker.collect(worker.launch(one)).token_ids == tokens
        worker.steps.outputs.append(unsampled())
        assert len(worker.logits(worker.launch(one._replace(masked=True)))) == 1 - rank


def test_a_worker_that_is_alone_tells_none(worker: Any) -> None:
    worker.steps.outputs.append(StepOutput(sampled(5)))
    assert worker.collect(worker.launch(step(setup(1)))).digest == b""
