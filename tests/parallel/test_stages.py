"""Layers in several processes (pipeline parallelism): the bits of one, and one end for all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

from jax_engine import LLM, EngineConfig, SamplingParams
from jax_engine.engine.startup import build
from jax_engine.engine.startup.device_settings import check_processes, check_stages
from jax_engine.errors import ConfigError
from jax_engine.layers.batch import one_sequence
from jax_engine.model_spec import AttentionSpec, LayerGroup, LayerSpec, MlpSpec, ModelSpec
from jax_engine.models.model_loader import open_model
from jax_engine.parallel.partition import VARIABLE, layers_of_stages, staged
from tests.engine.test_through_bytes import KINDS, SETTINGS, outputs
from tests.golden.families.checkpoints import cases
from tests.golden.families.parity import write
from tests.parallel.test_processes import PROMPTS, SMALL, pids
from tests.support.devices import for_cpu_kernels
from tests.support.tiny_llama import byte_llama

pytestmark = pytest.mark.usefixtures("patient_runners")
on_kernels = for_cpu_kernels("they meet by a kernel for a CPU")
LENGTH = 21
SAMPLED = SamplingParams(
    n=2, temperature=1.0, seed=5, max_tokens=12, logprobs=2, prompt_logprobs=1, ignore_eos=True
)


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> str:
    sizes = {"num_attention_heads": 8, "num_key_value_heads": 4, "num_hidden_layers": 3}
    return str(byte_llama(tmp_path_factory.mktemp("models") / "bytes", **sizes))


def answers(llm: LLM, asked: SamplingParams = SAMPLED) -> Any:
    found = llm.generate(PROMPTS, asked, use_tqdm=False)
    return [
        ([(one.token_ids, one.logprobs) for one in each.outputs], each.prompt_logprobs)
        for each in found
    ]


@pytest.mark.slow
@on_kernels
@pytest.mark.parametrize(("stages", "devices"), [(2, 1), (3, 1), (2, 2)])
def test_i52_every_kind_of_request_has_the_same_bits(
    of_bytes: str, stages: int, devices: int
) -> None:
    """Masks, beams, samples, embeddings: those of one device in this process."""
    given = {**SETTINGS, "num_gpu_blocks_override": 120, "batch_invariant": True}
    wanted = outputs(LLM(of_bytes, **given))
    assert set(wanted) == {*KINDS, "embedding", "embedded tokens"}
    there = LLM(of_bytes, **given, pipeline_parallel_size=stages, tensor_parallel_size=devices)
    assert len(pids(there)) == stages * devices
    assert outputs(there) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "swapped"),
    [
        ({"preemption_mode": "swap"}, True),
        ({"preemption_mode": "recompute", "kv_cache_dtype": "fp8"}, False),
        ({"scheduling": "sosp", "dtype": "bfloat16"}, None),
        ({"max_num_batched_tokens": 6, "enable_prefix_caching": False}, None),
        ({"async_scheduling": False}, None),
        ({"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}}, None),
    ],
)
def test_i52_each_stage_swaps_and_recomputes_its_layers(
    of_bytes: str, given: dict[str, Any], swapped: bool | None
) -> None:
    few = {**SMALL, "num_gpu_blocks_override": 13, "swap_space": 0.01, **given}
    wanted = answers(LLM(of_bytes, **few))
    llm = LLM(of_bytes, **few, pipeline_parallel_size=2)
    assert answers(llm) == wanted
    stats = llm.llm_engine.stats()
    assert swapped is None or (stats.num_swapped_out if swapped else stats.num_recomputed) > 0


@pytest.mark.slow
@on_kernels
@pytest.mark.parametrize(
    "name", ["bloom", "gemma3", "gpt_oss", "deepseek_v3", "cohere2", "gpt2", "llama4"]
)
def test_i52_a_border_may_fall_anywhere_in_a_model(name: str, tmp_path: Path) -> None:
    """Learned positions, norms of the embedding, patterns of layers, experts, latents, chunks."""
    write(cases()[name], tmp_path)
    layers = open_model(str(tmp_path)).abstract.config.spec.num_layers
    wanted = logits_of(str(tmp_path), 1)
    for stages in {2, layers}:
        np.testing.assert_array_equal(logits_of(str(tmp_path), stages), wanted)


def logits_of(model: str, num_stages: int) -> np.ndarray:
    """Logits of a prompt. The stages are loaded and run in turn, in this process."""
    stream: Any = ()
    for stage in range(num_stages):
        loaded = open_model(model, stage=(stage, num_stages)).load()
        num_layers = loaded.config.spec.num_layers

        def run(parts: Any, *stream: Any, num_layers: int = num_layers) -> Any:
            decoder = nnx.merge(*parts)
            dtype = jnp.dtype(jnp.float32)
            batch, cache = one_sequence(decoder.spec.attentions, num_layers, LENGTH, dtype)
            if decoder.spec.has_embedding:
                stream = decoder.first_stream(jnp.arange(3, 3 + LENGTH), batch)
            stream, _ = decoder.run_layers(stream, batch, cache)
            if not decoder.spec.has_head:
                return stream
            return decoder.compute_logits(decoder.read(stream, batch), jnp.int32(LENGTH))

        stream = jax.jit(run)((loaded.graphdef, loaded.params), *stream)
    return np.asarray(stream)


def test_each_stage_holds_its_layers_and_nothing_else(of_bytes: str) -> None:
    """The first stage of three layers has the embedding, the last one norm and head."""
    found = [open_model(of_bytes, stage=(stage, 2)) for stage in range(2)]
    whole = open_model(of_bytes)
    names = [{leaf.declared for leaf in files.leaves.values()} for files in found]
    assert {"embed.weight"} <= names[0] and not {"norm.weight", "lm_head.weight"} & names[0]
    tied = whole.abstract.config.spec.tied
    assert ("embed.weight" in names[1]) == tied and "norm.weight" in names[1]
    layers = [{n for leaf in files.leaves.values() for n in leaf.layers or ()} for files in found]
    assert layers == [{0, 1}, {2}]
    assert [files.abstract.config.spec.num_layers for files in found] == [2, 1]
    assert all(files.abstract.all_layers.spec.num_layers == 3 for files in found)
    assert sum(files.abstract.num_bytes for files in found) < 1.5 * whole.abstract.num_bytes


@given(num_layers=st.integers(1, 80), size=st.integers(1, 80))
def test_stages_share_the_layers_as_in_vllm(num_layers: int, size: int) -> None:
    """Stages differ by one layer at most, and the last has the fewest."""
    if size > num_layers:
        with pytest.raises(ConfigError, match=rf"number of layers \({num_layers}\), got {size}"):
            layers_of_stages(num_layers, size, {})
        return
    found = layers_of_stages(num_layers, size, {})
    assert [layer for stage in found for layer in stage] == [*range(num_layers)]
    counts = [len(stage) for stage in found]
    assert len(found) == size and max(counts) - min(counts) <= 1 and counts[-1] == min(counts)


def test_the_variable_says_the_layers_of_each_stage() -> None:
    assert layers_of_stages(7, 3, {}) == [range(2), range(2, 5), range(5, 7)]
    assert layers_of_stages(7, 3, {VARIABLE: "1, 4,2"}) == [range(1), range(1, 5), range(5, 7)]
    assert layers_of_stages(7, 1, {VARIABLE: "1,6"}) == [range(7)]
    for wrong in ("7", "3,4", "1,4,3", "0,4,3", "1,x,6", "1,4,", "-1,4,4"):
        with pytest.raises(ConfigError, match="of 3 stages, at least 1 each and 7 together"):
            layers_of_stages(7, 3, {VARIABLE: wrong})


@st.composite
def specs(draw: st.DrawFn) -> ModelSpec:
    """Groups of patterns whose layers differ, some by numbers for each repetition."""
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        repeats = draw(st.integers(1, 4))
        windows = st.none() | st.integers(1, 99) | st.tuples(*[st.integers(1, 99)] * repeats)
        pattern = [
            LayerSpec(
                AttentionSpec(2, 1, 4, window=draw(windows)), MlpSpec(draw(st.integers(1, 9)))
            )
            for _ in range(draw(st.integers(1, 3)))
        ]
        groups.append(LayerGroup(tuple(pattern), repeats))
    return ModelSpec(9, 8, tuple(groups), None, 64)


@given(spec=specs(), data=st.data())
def test_the_stages_together_are_the_model(spec: ModelSpec, data: st.DataObject) -> None:
    """Each layer once, with its own window, whatever patterns they are in."""
    size = data.draw(st.integers(1, spec.num_layers))
    found = [staged(spec, layers) for layers in layers_of_stages(spec.num_layers, size, {})]
    assert [one.has_embedding for one in found] == [i == 0 for i in range(size)]
    assert [one.has_head for one in found] == [i == size - 1 for i in range(size)]
    assert [layer for one in found for layer in _by_number(one)] == _by_number(spec)


def _by_number(spec: Any) -> list[Any]:
    """Number and specification of each layer, with the choices of its repetition."""
    found = []
    for place, group in enumerate(spec.groups):
        for position, layer in enumerate(group.pattern):
            for repetition, number in enumerate(spec.numbers(place, position)):
                window = layer.attention.window
                own = window[repetition] if isinstance(window, tuple) else window
                attention = replace(layer.attention, window=own)
                found.append((number, replace(layer, attention=attention)))
    return sorted(found, key=lambda pair: pair[0])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"enable_lora": True}, "with enable_lora"),
        ({"kv_cache_dtype": "int8"}, "kv_cache_dtype='int8'"),
        (
            {"speculative_config": {"method": "draft_model", "model": "x"}},
            r"a draft model \(speculative_config\)",
        ),
        ({"distributed_executor_backend": "uni"}, "must be 'mp' with several stages.*got 'uni'"),
        ({"distributed_executor_backend": "ray"}, "must be 'mp' with several stages.*got 'ray'"),
    ],
)
def test_what_stages_do_not_compute_is_refused_by_name(given: dict[str, Any], match: str) -> None:
    check_stages(EngineConfig(**given))
    with pytest.raises(ConfigError, match=match):
        check_stages(EngineConfig(pipeline_parallel_size=2, **given))


@pytest.mark.parametrize("stages", [4, 10**9])
def test_more_stages_than_layers_are_refused_before_any_process_is_started(
    stages: int, of_bytes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "RunnerClient", None)
    with pytest.raises(ConfigError, match=rf"at most the number of layers \(3\), got {stages}"):
        LLM(of_bytes, **SMALL, pipeline_parallel_size=stages)


@pytest.mark.parametrize("stages", [1, 2])
def test_experts_are_dealt_in_each_stage_or_refused(stages: int, of_bytes: str) -> None:
    config = EngineConfig(
        model=of_bytes,
        pipeline_parallel_size=stages,
        tensor_parallel_size=2,
        enable_expert_parallel=True,
    )
    with pytest.raises(ConfigError, match="without experts, got True"):
        check_processes(config)
