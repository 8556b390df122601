"""The packed plan: what the host packs, the device unpacks; positions and slots by hand."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import SamplingParams
from jax_engine.core.output import ScheduledSequence
from jax_engine.worker.request_sampling import derive_seed, request_sampling
from jax_engine.worker.step_plan import pack_step, unpack_step

B, W = 4, 6
EOS = frozenset({1})
_unpack = jax.jit(unpack_step, static_argnums=(2, 3, 4))
PREVIOUS = np.arange(100, 108)  # tokens of the step before


def _unpacked(packed, shape):
    """The device's plan, in NumPy (outside of its class, whose shapes are JAX arrays)."""

    def on_host(part):
        if not dataclasses.is_dataclass(part):
            return np.asarray(part)
        return SimpleNamespace(**{k: on_host(v) for k, v in vars(part).items()})

    return on_host(_unpack(jnp.asarray(packed), jnp.asarray(PREVIOUS), shape, W, B))


@st.composite
def steps(draw):
    """A few sequences with chunks anywhere, and what each of them asked for."""
    items, rows, sampling = [], [], {}
    for i in range(draw(st.integers(1, 6))):
        length = draw(st.integers(1, B * W))
        start = draw(st.integers(0, length - 1))
        end = draw(st.integers(start + 1, length))
        n = draw(st.sampled_from([1, 1, 3]))
        params = SamplingParams(
            n=n, seed=draw(st.integers(0, 2**63)), min_tokens=draw(st.sampled_from([0, 2])),
            frequency_penalty=draw(st.sampled_from([0.0, 0.5])), top_k=i, top_p=0.25,
            logit_bias=draw(st.sampled_from([None, {2: 1.5}])), stop_token_ids=[4],
            prompt_logprobs=draw(st.sampled_from([None, None, 2])),
        )  # fmt: skip
        tokens = draw(st.lists(st.integers(0, 99), min_size=length, max_size=length))
        pending = 0
        if end == length and draw(st.booleans()):  # the last one is not known on the host
            pending = -1 - draw(st.integers(0, len(PREVIOUS) - 1))
            tokens[-1] = int(PREVIOUS[-1 - pending])
        group = SimpleNamespace(request_id=str(i), prompt_len=max(1, length - 1))
        known = tokens[:-1] if pending else tokens
        seq = SimpleNamespace(
            token_ids=known, index=0, pending=pending, num_tokens=length, all_tokens=tokens
        )
        items.append(ScheduledSequence(seq, group, start, end - start, n * (end == length)))
        rows.append(
            np.array(draw(st.lists(st.integers(0, 9), min_size=W, max_size=W)), np.int32) + 10 * i
        )
        sampling[str(i)] = request_sampling(params, params.seed, EOS)
    return items, rows, sampling


@given(steps())
def test_i10_unpacking_gives_each_token_its_position_and_slot(step) -> None:
    """I10, on the device's side: slot of position p is table[p // B] * B + p % B, nothing else."""
    items, rows, sampling = step
    shape, packed = pack_step(items, rows, sampling, W)
    plan = _unpacked(packed, shape)
    at, sample_at = 0, 0
    for i, (item, row) in enumerate(zip(items, rows, strict=True)):
        assert plan.query_start_loc[i] == at
        assert plan.context_lens[i] == item.start + item.num_tokens
        assert np.array_equal(plan.block_tables[i], row)
        for p in range(item.start, item.start + item.num_tokens):
            assert plan.token_ids[at] == item.seq.all_tokens[p]
            assert plan.positions[at] == p
            assert plan.slot_mapping[at] == row[p // B] * B + p % B
            at += 1
        for j in range(item.num_samples):
            assert plan.logits_index[sample_at] == at - 1
            assert plan.sampling.position[sample_at] == item.seq.num_tokens
            seed = plan.sampling.seed[sample_at]
            state = sampling[item.group.request_id]
            assert np.array_equal(seed.view(np.int32), state.rows[j][0, :2])
            assert plan.sampling.top_k[sample_at] == i
            assert plan.sampling.top_p[sample_at] == 0.25
            sample_at += 1
    assert (plan.slot_mapping[at:] == -1).all()
    assert (plan.context_lens[len(items) :] == 0).all()
    assert (plan.query_start_loc[len(items) :] == at).all()
    assert (plan.sampling.temperature[sample_at:] == 0).all()


@given(steps())
def test_sparse_entries_name_their_rows(step) -> None:
    items, rows, sampling = step
    shape, packed = pack_step(items, rows, sampling, W)
    plan = _unpacked(packed, shape).sampling
    bias, history = [], []
    row = 0
    for item in items:
        state = sampling[item.group.request_id]
        output_len = item.seq.num_tokens - item.group.prompt_len
        for _ in range(item.num_samples):
            bias += [(row, 2, 1.5)] * bool(state.bias.size)
            bias += [(row, t, -np.inf) for t in (1, 4) if output_len < state.min_tokens]
            if state.has_penalties:
                history += [
                    (row, t, int(p >= item.group.prompt_len))
                    for p, t in enumerate(item.seq.all_tokens)
                ]
            row += 1
    real = plan.bias_row < shape.num_rows
    found = zip(plan.bias_row[real], plan.bias_token[real], plan.bias_value[real], strict=True)
    assert sorted(found) == sorted(bias)
    real = plan.history_row < shape.num_rows
    columns = plan.history_row[real], plan.history_token[real], plan.history_is_output[real]
    assert sorted(zip(*columns, strict=True)) == sorted(history)


@given(steps())
def test_targets_are_the_next_tokens_of_prompts_that_are_scored(step) -> None:
    items, rows, sampling = step
    shape, packed = pack_step(items, rows, sampling, W)
    targets = []
    for item in items:
        wanted = sampling[item.group.request_id].prompt_logprobs
        for p in range(item.start + 1, item.start + item.num_tokens + 1):
            in_prompt = wanted and p < item.group.prompt_len
            targets.append(item.seq.all_tokens[p] if in_prompt else -1)
    found = _unpacked(packed, shape).targets
    assert shape.prompt_logprobs == any(target >= 0 for target in targets)
    if shape.prompt_logprobs:
        assert found[: len(targets)].tolist() == targets
        assert len(found) == shape.num_tokens and (found[len(targets) :] == -1).all()
    else:
        assert len(found) == 0


def test_seeds_of_samples_are_the_reference_s() -> None:
    """I37: sample i of a request with seed s is the request with seed derive_seed(s, i)."""
    from reference import random_numbers as oracle

    for seed in (0, 7, 2**63 - 1):
        assert [derive_seed(seed, i) for i in range(4)] == [
            oracle.derive_seed(seed, i) for i in range(4)
        ]
    assert 0 <= derive_seed(-5, 3) < 2**63
