"""What a step hands from one of its parts to another, seen while it is traced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pallas_kernels
from jax_engine.layers import attention, batch
from jax_engine.model_spec import AttentionSpec
from jax_engine.models.model_loader import LoadedModel, abstract_decoder
from jax_engine.models.registry import config_from_hf
from jax_engine.operations import device, this_device
from jax_engine.sampling.sampling_inputs import ROW_WIDTH, SamplerStages
from jax_engine.step import Moves, RequestSetup, Row, Samples, Step
from jax_engine.worker import compiled_steps, step_output
from jax_engine.worker.kv_cache import kv_cache_shape, scales_shape
from jax_engine.worker.step_output import NUM_TOP, StepOutput
from jax_engine.worker.step_plan import pack_step
from jax_engine.worker.step_shape import StepShape
from tests.golden import tiny_checkpoints as tiny

SHAPES = [StepShape(1, 1, decode_only=True), StepShape(32, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_metadata_is_made_for_the_calls_of_the_layers(
    shape: StepShape, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a step, and its backend is the one that each layer's call would choose."""
    made, attended = [], []

    def make_metadata(*arrays: Any, **options: Any) -> Any:
        made.append((options["call"], pallas_kernels.make_metadata(*arrays, **options)))
        return made[-1][1]

    def paged_attention(q: Any, kv_cache: Any, *arrays: Any, metadata: Any, **options: Any) -> Any:
        attended.append((q, kv_cache, metadata))
        return pallas_kernels.paged_attention(q, kv_cache, *arrays, metadata=metadata, **options)

    monkeypatch.setattr(batch, "make_metadata", make_metadata)
    monkeypatch.setattr(attention, "paged_attention", paged_attention)
    config = config_from_hf(tiny.CONFIGS["plain"])
    graphdef, params = abstract_decoder(config.spec, dtype)
    model = LoadedModel(config, graphdef, params, Path(), 0, 0)
    steps = compiled_steps.CompiledSteps(model, block_size=16, table_width=4, max_rows=8)
    cache = jax.ShapeDtypeStruct(kv_cache_shape(config, 9, 16), jnp.dtype(dtype))
    function, arguments = steps.function(shape, cache)
    jax.jit(function).lower(*arguments)

    [(call, metadata)], [(q, kv_cache, received)] = made, attended
    assert (call[0].shape, call[1].shape) == (q.shape, kv_cache.shape)
    assert call[1].dtype == kv_cache.dtype
    assert received.backend == metadata.backend
    assert received.decode_only == shape.decode_only


@pytest.mark.parametrize("cache_dtype", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_quantised_cache_is_updated_where_it_is(shape: StepShape, cache_dtype: str) -> None:
    """The kernels of the model's dtype do it. No step converts or copies the cache."""
    config = config_from_hf(tiny.CONFIGS["plain"])
    graphdef, params = abstract_decoder(config.spec, "float32")
    model = LoadedModel(config, graphdef, params, Path(), 0, 0)
    steps = compiled_steps.CompiledSteps(
        model, block_size=16, table_width=4, max_rows=8, dtype="float32",
        kv_scales=scales_shape(config, cache_dtype),
    )  # fmt: skip
    cache = jax.ShapeDtypeStruct(kv_cache_shape(config, 4096, 16), jnp.dtype(cache_dtype))
    num_bytes = cache.size
    memory = steps.compile(shape, cache).memory_analysis()
    assert memory.alias_size_in_bytes == num_bytes
    assert memory.temp_size_in_bytes < num_bytes // 4


VOCABULARY, MAX_ROWS, TABLE_WIDTH = 40, 20, 4
CACHE = (1, 2, 1, 1, 4, 2)


class Counting:
    """A model that says after each token the one above it; a state is a token and its place."""

    attention = AttentionSpec(1, 1, 2)
    spec = SimpleNamespace(
        attentions=[attention], vocab_size=VOCABULARY, shared_by=1, width=2,
        has_embedding=True, has_head=True,
    )  # fmt: skip

    def first_stream(self, tokens: Any, batch: Any) -> Any:
        return tokens, batch.positions

    def run_layers(self, stream: Any, batch: Any, cache: Any) -> Any:
        return stream, cache + 1

    def read(self, stream: Any, batch: Any) -> Any:
        return jnp.stack(stream, 1).astype(jnp.float32)

    def compute_logits(self, states: Any, num_needed: Any = None) -> Any:
        return -jnp.abs(jnp.arange(VOCABULARY) - states[:, :1] - 1)


def counting_steps(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setattr(compiled_steps.nnx, "merge", lambda *_: Counting())
    config = SimpleNamespace(spec=Counting.spec)
    weights = {"weight": jnp.ones(2)}
    model: Any = SimpleNamespace(graphdef=(), params=weights, mesh=None, config=config)
    sizes = {"block_size": 4, "table_width": TABLE_WIDTH, "max_rows": MAX_ROWS}
    return compiled_steps.CompiledSteps(model, **sizes, **options)


def plan(*, masked: bool = False, **asks: Any) -> tuple[StepShape, np.ndarray]:
    """Prompts of the tokens 3, 4, 5, 6 and 10, 11."""
    nothing, words = np.zeros((2, 0), np.int32), np.zeros((1, ROW_WIDTH), np.int32)
    prompts = {1: [3, 4, 5, 6], 2: [10, 11]}
    setups = {
        i: RequestSetup(i, prompt, words, nothing, nothing, is_special=bool(asks), **asks)
        for i, prompt in prompts.items()
    }
    rows = [Row(i, i, 0, prompt) for i, prompt in prompts.items()]
    tables = np.zeros((2, TABLE_WIDTH), np.int32)
    step = Step(rows, Samples([3, 5], [0, 0]), tables, Moves([], [], []), [], [], masked)
    return pack_step(step, setups, TABLE_WIDTH)


def run(steps: Any, shape: StepShape, packed: np.ndarray) -> StepOutput:
    cache, output = steps(shape, jnp.zeros(CACHE), packed, jnp.zeros(MAX_ROWS, jnp.int32))
    assert (np.asarray(cache) == 1).all()
    assert isinstance(output, StepOutput)
    return output


@pytest.mark.slow
@pytest.mark.parametrize("eager", [False, True])
def test_a_step_gives_what_its_shape_asks_for(eager: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = counting_steps(monkeypatch, enforce_eager=eager)
    output = run(steps, *plan())
    assert output.sampled is not None
    assert output.unsampled is output.prompt is output.pooled is None
    assert output.sampled.token_ids.shape == (MAX_ROWS,)
    assert output.sampled.token_ids[:2].tolist() == [7, 12]

    output = run(steps, *plan(pooling=True))
    assert output.pooled is not None and output.prompt is None
    assert output.pooled.total[:2].tolist() == [[18.0, 6.0], [21.0, 1.0]]
    assert output.pooled.last[:2].tolist() == [[6.0, 3.0], [11.0, 1.0]]

    for whole, num_top in [(False, NUM_TOP), (True, VOCABULARY)]:
        output = run(steps, *plan(prompt_logprobs=-1 if whole else 0))
        assert output.prompt is not None and output.pooled is None
        assert output.prompt.token_ids[:6].tolist() == [4, 5, 6, 0, 11, 0]
        assert output.prompt.ranks[:3].tolist() == [1, 1, 1]
        assert output.prompt.top_token_ids.shape == (32, num_top)
    assert len(steps.compiled_shapes()) == (0 if eager else 4)


@pytest.mark.parametrize("eager", [False, True])
def test_a_split_step_is_sampled_by_another_program(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(step_output, "give_back", lambda: trimmed.append(1))
    steps = counting_steps(monkeypatch, enforce_eager=eager)
    output = run(steps, *plan(masked=True))
    assert output.sampled is None and output.unsampled is not None
    raw = np.asarray(output.unsampled.logits)
    assert raw[:2].argmax(1).tolist() == [7, 12]
    mask = np.full((len(raw), 2), 2**32 - 1, np.uint32)
    mask[1] = 0b1001, 0
    trimmed.clear()
    for _ in range(2):
        drawn = steps.sample(output.unsampled, raw, mask)
        assert drawn.token_ids[:2].tolist() == [7, 3]
        assert steps.sample(output.unsampled, -raw, mask).token_ids[:2].tolist() == [39, 0]
    assert len(trimmed) == len(steps.sample.programs) == (0 if eager else 1)


@pytest.mark.parametrize("waits", [False, True])
def test_what_rows_ask_for_chooses_a_sampler_where_branches_wait(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere one program serves all of them, and steps that need no mask have none."""
    waiting = this_device()._replace(branches_wait=waits)
    monkeypatch.setattr(step_output, "this_device", lambda: waiting)
    steps = counting_steps(monkeypatch)
    assert (run(steps, *plan()).sampled is None) == waits
    unsampled = run(steps, *plan(masked=True)).unsampled
    for asks in (SamplerStages(), SamplerStages(logprobs=True), SamplerStages()):
        drawn = steps.sample(unsampled, None, None, asks)
        assert drawn.token_ids[:2].tolist() == [7, 12]
    assert len(steps.sample.programs) == (2 if waits else 1)


def test_each_shape_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler took is given back, and the cache that a step gets is donated to it."""
    trimmed: list[int] = []
    monkeypatch.setattr(compiled_steps, "give_back", lambda: trimmed.append(1))
    steps = counting_steps(monkeypatch)
    shape, packed = plan()
    assert not steps.has(shape) and steps.compiled_shapes() == []
    previous = jnp.zeros(MAX_ROWS, jnp.int32)
    for _ in range(2):
        cache = jnp.zeros(CACHE)
        steps(shape, cache, packed, previous)
        assert cache.is_deleted() and not previous.is_deleted()
    assert steps.has(shape) and steps.compiled_shapes() == [shape] and trimmed == [1]
    other, _ = plan(pooling=True)
    assert steps.prepare(other, jnp.zeros(CACHE)) is steps._compiled[other]
    assert steps.compiled_shapes() == [shape, other] and trimmed == [1, 1]
    assert counting_steps(monkeypatch, enforce_eager=True).has(other)


class Multiplying(Counting):
    """A model whose logits are a product."""

    def __init__(self, dtype: str) -> None:
        self.weight = jnp.ones((2, VOCABULARY), dtype)

    def compute_logits(self, states: Any, num_needed: Any = None) -> Any:
        return (states.astype(self.weight.dtype) @ self.weight).astype(jnp.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("precision", ["highest", None])
def test_products_of_float32_are_exact_on_any_device(
    dtype: str, precision: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU rounds their inputs to TF32 unless it is told not to; bfloat16 is as it is."""
    devices = tuple(one._replace(float32_precision=precision) for one in device.DEVICES)
    monkeypatch.setattr(device, "DEVICES", devices)
    steps = counting_steps(monkeypatch, dtype=dtype)
    monkeypatch.setattr(compiled_steps.nnx, "merge", lambda *_: Multiplying(dtype))
    function, arguments = steps.function(plan()[0], jnp.zeros(CACHE))
    lowered = jax.jit(function).lower(*arguments).as_text()
    assert "dot_general" in lowered
    assert ("HIGHEST" in lowered) == (dtype == "float32" and precision is not None)
    with jax.default_matmul_precision("high"):  # a user who has chosen
        assert "HIGHEST" not in jax.jit(function).lower(*arguments).as_text()


def test_a_cpu_is_told_nothing_and_other_devices_are() -> None:
    known = {one.platform: one.float32_precision for one in device.DEVICES}
    assert known == {"cpu": None, "gpu": "highest"}
    assert device.Device("tpu").float32_precision == "highest"
