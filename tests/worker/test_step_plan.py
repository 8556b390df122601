"""The packed plan: what the host packs, the device unpacks; positions and slots by hand."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.engine.running_requests import derive_seed, request_setup
from jax_engine.sampling.sampling_inputs import ROW_WIDTH, PackedSampling
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step
from jax_engine.worker import step_plan
from jax_engine.worker.step_output import NUM_TOP
from jax_engine.worker.step_plan import (
    adapters_of_tokens,
    pack_step,
    prompt_embeds,
    split_fields,
    unpack_step,
)
from jax_engine.worker.step_shape import StepShape

B, W = 4, 6
EOS = frozenset({1})
_unpack = jax.jit(unpack_step, static_argnums=(2, 3, 4))
PREVIOUS = np.arange(100, 108)  # tokens of the step before


def _unpacked(packed, shape):
    """The device's plan, in NumPy (outside of its class, whose shapes are JAX arrays)."""

    def on_host(part):
        if isinstance(part, PackedSampling):
            part = part.unpacked()
        if not dataclasses.is_dataclass(part):
            return part if part is None else np.asarray(part)
        return SimpleNamespace(**{k: on_host(v) for k, v in vars(part).items()})

    return on_host(_unpack(jnp.asarray(packed), jnp.asarray(PREVIOUS), shape, W, B))


@dataclasses.dataclass
class Case:
    """A step, what the worker knows of its requests, and all tokens of each row."""

    step: Step
    setups: dict[int, RequestSetup]
    texts: list[list[int]]

    def __iter__(self):
        rows = zip(self.step.rows, self.step.block_tables, self.texts, strict=True)
        return ((row, self.setups[row.request], table, text) for row, table, text in rows)

    @property
    def samples(self) -> list[tuple[int, int, int, list[int]]]:
        """Each sample's token, index, row, and the tokens of its sequence that it follows."""
        follows = [
            (i, text[: p + 1])
            for i, (row, text) in enumerate(zip(self.step.rows, self.texts, strict=True))
            for p in range(row.start, row.end)
        ]
        columns = zip(self.step.samples.tokens, self.step.samples.indices, strict=True)
        return [(token, index, *follows[token]) for token, index in columns]


@st.composite
def cases(draw):
    """A few sequences with chunks anywhere, and what each of them asked for."""
    rows, tables, setups, texts = [], [], {}, []
    samples: list[tuple[int, int]] = []
    total = 0
    for i in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, B * W))
        start = draw(st.integers(0, length - 1))
        end = draw(st.integers(start + 1, length))
        n = draw(st.sampled_from([1, 1, 2, 3]))
        params = SamplingParams(
            n=n, seed=draw(st.integers(0, 2**63)), min_tokens=draw(st.sampled_from([0, 2])),
            frequency_penalty=draw(st.sampled_from([0.0, 0.5])), top_k=i, top_p=0.25,
            logit_bias=draw(st.sampled_from([None, {2: 1.5}])), stop_token_ids=[4],
            prompt_logprobs=draw(st.sampled_from([None, None, 2])),
        )  # fmt: skip
        text = draw(st.lists(st.integers(0, 99), min_size=length, max_size=length))
        known = list(text)
        if end == length and draw(st.booleans()):  # the last one is not known on the host
            known[-1] = -1 - draw(st.integers(0, len(PREVIOUS) - 1))
            text[-1] = int(PREVIOUS[-1 - known[-1]])
        setups[10 + i] = request_setup(10 + i, text[: max(1, length - 1)], params, params.seed, EOS)
        # A prompt that ends draws all its samples; behind its fork each sequence draws its own.
        # And any token of a row may have samples behind it.
        behind = draw(st.lists(st.integers(total, total + end - start - 1), max_size=3))
        fork = n if end == length and draw(st.booleans()) else 0
        total += end - start
        samples += [(token, draw(st.integers(0, n - 1))) for token in behind]
        samples += [(total - 1, index) for index in range(fork)]
        rows.append(Row(i, 10 + i, start, known[start:end], known[:end]))
        tables.append(draw(st.lists(st.integers(0, 9), min_size=W, max_size=W)))
        texts.append(text)
    tables = np.array(tables, np.int32) + 10 * np.arange(len(rows), dtype=np.int32)[:, None]
    samples = draw(st.permutations(samples))
    drawn = Samples([token for token, _ in samples], [index for _, index in samples])
    return Case(Step(rows, drawn, tables, Moves([], [], []), [], []), setups, texts)


def inside_of_a_prompt() -> Case:
    """A draw inside of a prompt, beside a request with a bias."""
    params = SamplingParams(stop_token_ids=[4]), SamplingParams(logit_bias={2: 1.5})
    setups = {10 + i: request_setup(10 + i, [0, 0], one, i, EOS) for i, one in enumerate(params)}
    rows = [Row(i, 10 + i, 0, [0]) for i in range(2)]
    samples, tables = Samples([0, 1], [0, 0]), np.zeros((2, W), np.int32)
    return Case(Step(rows, samples, tables, Moves([], [], []), [], []), setups, [[0, 0]] * 2)


def behind_a_pending_token() -> Case:
    """A draw with penalties behind a token that the host does not know."""
    setup = request_setup(10, [0], SamplingParams(frequency_penalty=0.5), 1, EOS)
    row, samples, tables = Row(0, 10, 1, [-4], [0, -4]), Samples([0], [0]), np.zeros((1, W), int)
    step = Step([row], samples, tables.astype(np.int32), Moves([], [], []), [], [])
    return Case(step, {10: setup}, [[0, int(PREVIOUS[3])]])


@given(cases())
def test_i10_unpacking_gives_each_token_its_position_and_slot(case) -> None:
    """I10, on the device's side: slot of position p is table[p // B] * B + p % B, nothing else."""
    shape, packed = pack_step(case.step, case.setups, W)
    plan = _unpacked(packed, shape)
    sampling = plan.sampling
    at = 0
    for i, (row, _, table, text) in enumerate(case):
        assert plan.query_start_loc[i] == at
        assert plan.context_lens[i] == row.end
        assert plan.prompt_lens[i] == len(case.setups[row.request].prompt_token_ids)
        assert np.array_equal(plan.block_tables[i], table)
        for p in range(row.start, row.end):
            assert plan.token_ids[at] == text[p]
            assert plan.positions[at] == p
            assert plan.slot_mapping[at] == table[p // B] * B + p % B
            at += 1
    for j, (token, index, i, follows) in enumerate(case.samples):
        assert plan.logits_index[j] == token
        assert sampling.position[j] == len(follows)
        words = case.setups[10 + i].rows[index, :2]
        assert np.array_equal(sampling.seed[j].view(np.int32), words)
        assert sampling.top_k[j] == i
        assert sampling.top_p[j] == 0.25
    assert plan.num_samples == len(case.samples)
    assert (plan.slot_mapping[at:] == -1).all() and (plan.positions[at:] == 0).all()
    assert len(plan.query_start_loc) == len(plan.context_lens) + 1 == shape.num_rows + 1
    assert (plan.context_lens[len(case.texts) :] == 0).all()
    assert (plan.query_start_loc[len(case.texts) :] == at).all()
    assert (sampling.temperature[len(case.samples) :] == 0).all()


@example(inside_of_a_prompt())
@example(behind_a_pending_token())
@given(cases())
def test_sparse_entries_name_their_rows(case) -> None:
    shape, packed = pack_step(case.step, case.setups, W)
    plan = _unpacked(packed, shape).sampling
    bias, history = [], []
    for at, (_, _, i, follows) in enumerate(case.samples):
        setup = case.setups[10 + i]
        prompt_len = len(setup.prompt_token_ids)
        bias += [(at, 2, 1.5)] * bool(setup.bias.size)
        early = len(follows[prompt_len:]) < setup.min_tokens
        bias += [(at, t, -np.inf) for t in (1, 4) if early]
        if setup.has_penalties:
            history += [(at, t, int(p >= prompt_len)) for p, t in enumerate(follows)]
    real = plan.bias_row < shape.num_rows
    found = zip(plan.bias_row[real], plan.bias_token[real], plan.bias_value[real], strict=True)
    assert sorted(found) == sorted(bias)
    real = plan.history_row < shape.num_rows
    columns = plan.history_row[real], plan.history_token[real], plan.history_is_output[real]
    assert sorted(zip(*columns, strict=True)) == sorted(history)


@given(cases())
def test_targets_are_the_next_tokens_of_prompts_that_are_scored(case) -> None:
    shape, packed = pack_step(case.step, case.setups, W)
    targets = []
    for row, setup, _, text in case:
        for p in range(row.start + 1, row.end + 1):
            in_prompt = setup.prompt_logprobs and p < len(setup.prompt_token_ids)
            targets.append(text[p] if in_prompt else -1)
    found = _unpacked(packed, shape).targets
    assert shape.prompt_logprobs == any(target >= 0 for target in targets)
    if shape.prompt_logprobs:
        assert found[: len(targets)].tolist() == targets
        assert len(found) == shape.num_tokens and (found[len(targets) :] == -1).all()
    else:
        assert len(found) == 0


@pytest.mark.parametrize("ragged", [True, False])
def test_guesses_do_not_make_a_step_mixed(ragged: bool) -> None:
    """They are queries of their row where attention takes that; else each is a row of its own."""
    rows = [Row(0, 10, 5, [7, 8, 9], num_draft=2), Row(1, 11, 3, [4])]
    setups = {10 + i: request_setup(10 + i, [0, 0], SamplingParams(), i, EOS) for i in range(2)}
    tables = np.array([[5, 3, 9, 0, 0, 0], [8, 0, 0, 0, 0, 0]], np.int32)
    step = Step(rows, Samples([0, 1, 2, 3], [0] * 4), tables, Moves([], [], []), [], [])
    shape, packed = pack_step(step, setups, W, batch_invariant=not ragged)
    assert shape == StepShape(4, 4, decode_only=True)
    arrays = jnp.asarray(packed), jnp.asarray(PREVIOUS)
    plan = unpack_step(*arrays, shape, W, B, batch_invariant=not ragged)
    assert plan.token_ids.tolist() == [7, 8, 9, 4]
    assert plan.positions.tolist() == [5, 6, 7, 3]
    assert plan.slot_mapping.tolist() == [3 * B + 1, 3 * B + 2, 3 * B + 3, 8 * B + 3]
    assert plan.logits_index.tolist() == [0, 1, 2, 3]
    assert plan.sampling.position.tolist() == [6, 7, 8, 4]
    starts, lens = ([0, 3, 4, 4, 4], [8, 4, 0, 0]) if ragged else ([0, 1, 2, 3, 4], [6, 7, 8, 4])
    assert plan.query_start_loc.tolist() == starts and plan.context_lens.tolist() == lens
    rows.append(Row(2, 12, 0, [1, 2]))
    beside_a_prompt = step._replace(rows=rows, block_tables=tables[[0, 1, 1]])
    setups[12] = request_setup(12, [1, 2, 3], SamplingParams(), 2, EOS)
    mixed, _ = pack_step(beside_a_prompt, setups, W, batch_invariant=not ragged)
    assert not mixed.decode_only and mixed.num_rows >= 4


NOTHING = np.zeros((2, 0), np.int32)


class Drawn(NamedTuple):
    """A row, and for which sequences a token is drawn behind its last one."""

    row: Row
    indices: range


def _packed(*parts: tuple[Drawn, RequestSetup], masked: bool = False):
    """The plan of a step of these rows."""
    rows, setups = [drawn.row for drawn, _ in parts], {setup.number: setup for _, setup in parts}
    ends = np.cumsum([len(row.tokens) for row in rows]).tolist()
    samples = Samples([], [])
    for end, (drawn, _) in zip(ends, parts, strict=True):
        samples.tokens.extend([end - 1] * len(drawn.indices))
        samples.indices.extend(drawn.indices)
    tables = np.zeros((len(rows), W), np.int32)
    return pack_step(Step(rows, samples, tables, Moves([], [], []), [], [], masked), setups, W)


def _row(number: int, start: int, count: int, num_samples: int, sample: int = 0) -> Drawn:
    return Drawn(Row(number, number, start, [1] * count), range(sample, sample + num_samples))


def _setup(number: int, prompt: int, samples: int = 1, **changes: Any) -> RequestSetup:
    """A request whose rows are numbered 100 * number + sample."""
    first = 100 * number + np.arange(samples, dtype=np.int32)[:, None]
    rows = np.repeat(first, ROW_WIDTH, axis=1)
    special = bool(changes)
    return RequestSetup(number, [1] * prompt, rows, NOTHING, NOTHING, is_special=special, **changes)


def test_each_sample_has_its_own_row_of_numbers() -> None:
    """A prompt that forks has one after another; a sequence its own; beams share the only one."""
    forks, beams = _setup(1, 3, samples=3), _setup(2, 3)
    shape, packed = _packed(
        (_row(2, 3, 1, 1, sample=2), beams),
        (_row(1, 3, 1, 1, sample=2), forks),
        (_row(1, 3, 1, 1, sample=0), forks),
        (_row(1, 0, 3, 3), forks),
        (_row(1, 0, 3, 2, sample=1), forks),
        (_row(2, 0, 3, 0), beams),
    )
    fields = split_fields(packed, shape, W)
    found = fields["sampling"]
    assert found[:, 0].tolist()[:9] == [200, 102, 100, 100, 101, 102, 101, 102, 0]
    assert (found == found[:, :1]).all()
    assert fields["token_of_sample"].tolist()[:9] == [0, 1, 2, 5, 5, 5, 8, 8, 0]
    assert fields["position_of_sample"].tolist()[:9] == [4, 4, 4, 3, 3, 3, 3, 3, 0]


def test_a_step_has_the_shape_of_its_tokens_rows_and_samples() -> None:
    plain = _setup(1, 40)
    assert _packed((_row(1, 0, 40, 1), plain))[0] == StepShape(64, 32)
    assert _packed((_row(1, 40, 1, 1), plain))[0] == StepShape(1, 1, decode_only=True)
    many = _setup(2, 1, samples=40)
    assert _packed((_row(2, 0, 1, 40), many))[0] == StepShape(128, 64)


@pytest.mark.parametrize("masked", [False, True])
def test_what_only_some_requests_ask_for_is_in_the_shape(masked: bool) -> None:
    """Each special row adds its own bit, in every order; a plain row changes nothing."""
    plain = (_row(9, 0, 2, 1), _setup(9, 2))
    ends, middle, early = _row(1, 2, 2, 1), _row(1, 2, 2, 0), _row(1, 1, 2, 0)

    def extras(*parts: tuple[Drawn, RequestSetup]) -> set[str]:
        shape, _ = _packed(*parts, masked=masked)
        names = ("prompt_logprobs", "whole_prompt_logprobs", "pooling")
        assert shape.split >= masked
        return {name for name in names if getattr(shape, name)} | (
            {"split"} if shape.split and not masked else set()
        )

    scored, rest = {"prompt_logprobs"}, {"prompt_logprobs", "whole_prompt_logprobs"}
    cases = [
        ((ends, _setup(1, 4, needs_logits=True)), set() if masked else {"split"}),
        ((middle, _setup(1, 4, needs_logits=True)), set()),
        ((ends, _setup(1, 4, pooling=True)), {"pooling"}),
        ((ends, _setup(1, 4, wants_logprobs=True)), set()),
        ((ends, _setup(1, 4, prompt_logprobs=0)), scored),
        ((ends, _setup(1, 3, prompt_logprobs=1)), set()),
        ((early, _setup(1, 3, prompt_logprobs=NUM_TOP)), scored),
        ((ends, _setup(1, 4, prompt_logprobs=NUM_TOP + 1)), rest),
        ((ends, _setup(1, 4, prompt_logprobs=-1)), rest),
        ((ends, _setup(1, 3, prompt_logprobs=-1)), set()),
    ]

    def whole(setup: RequestSetup) -> bool:
        return not 0 <= (setup.prompt_logprobs or 0) <= NUM_TOP

    for part, wanted in cases:
        assert extras(part) == wanted
        assert extras(plain, part) == extras(part, plain) == wanted
        for ((row, indices), setup), more in cases:
            other = (Drawn(row._replace(request=2), indices), replace(setup, number=2))
            if (wanted and more) or not whole(setup):
                both = wanted | more
                if whole(part[1]) and "prompt_logprobs" in both:
                    both = both | rest
                assert extras(part, other) == both
    assert extras(plain) == set()


def test_seeds_of_samples_are_the_reference_s() -> None:
    """I37: sample i of a request with seed s is the request with seed derive_seed(s, i)."""
    from reference import random_numbers as oracle

    for seed in (0, 7, 2**63 - 1):
        assert [derive_seed(seed, i) for i in range(4)] == [
            oracle.derive_seed(seed, i) for i in range(4)
        ]
    assert 0 <= derive_seed(-5, 3) < 2**63


def test_embeddings_of_a_step_are_those_of_its_positions() -> None:
    """Beside tokens, from the middle of a prompt on, and none behind its end."""
    embeds = np.arange(1.0, 9.0).reshape(4, 2)
    given, plain = _setup(1, 4, embeds=embeds), _setup(2, 3)
    rows = [_row(2, 0, 2, 0).row, _row(1, 1, 2, 0).row, _row(2, 2, 1, 0).row, _row(1, 3, 2, 0).row]
    found = prompt_embeds(rows, {1: given, 2: plain}, 10, 2, np.float32)
    none, nothing = [0.0, 0.0], [False]
    assert found.given.tolist() == 2 * nothing + [True] * 2 + nothing + [True] + 4 * nothing
    wanted = [none, none, [3.0, 4.0], [5.0, 6.0], none, [7.0, 8.0], none, none, none, none]
    assert found.vectors.tolist() == wanted and found.vectors.dtype == np.float32


def test_a_step_has_embeddings_where_a_row_begins_before_their_end() -> None:
    embeds = np.zeros((3, 2))
    shape = {start: _packed((_row(1, start, 1, 1), _setup(1, 3, embeds=embeds)))[0].embeds
             for start in range(5)}  # fmt: skip
    assert shape == {0: True, 1: True, 2: True, 3: False, 4: False}
    beside = (_row(2, 0, 2, 1), _setup(2, 2))
    assert _packed(beside, (_row(1, 0, 1, 0), _setup(1, 3, embeds=embeds)))[0].embeds


@pytest.mark.parametrize("branches_wait", [False, True])
def test_each_token_has_its_row_s_adapter(
    monkeypatch: pytest.MonkeyPatch, branches_wait: bool
) -> None:
    """Where a branch makes the host wait, steps with adapters have programs of their own."""
    device = step_plan.this_device()._replace(branches_wait=branches_wait)
    monkeypatch.setattr(step_plan, "this_device", lambda: device)
    parts = [(_row(number, 0, 2, 0), _setup(number, 3)) for number in (1, 2, 3)]
    assert not _packed(*parts)[0].lora
    slots = {1: 0, 2: 5, 3: 4}
    adapted = [
        (drawn._replace(row=drawn.row._replace(adapter=slots[setup.number])), setup)
        for drawn, setup in parts
    ]
    shape, packed = _packed(*adapted)
    assert shape.lora == branches_wait
    plan: Any = unpack_step(jnp.asarray(packed), jnp.asarray(PREVIOUS), shape, W, B)
    found = adapters_of_tokens(plan).tolist()
    assert found == [0, 0, 5, 5, 4, 4] + [0] * (shape.num_tokens - 6)
