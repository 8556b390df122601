"""The engine's decoder against the reference and against PyTorch transformers (I39)."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_engine.models.decoder import Decoder
from jax_engine.models.leaves import abstract_leaves, fill_state
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.model_loader import abstract_decoder, load_model
from jax_engine.models.registry import config_from_hf
from jax_engine.models.weight_loader import random_leaves
from jax_engine.operations import formats_for
from jax_engine.weights.dense import Dense, IndexedDense
from jax_engine.weights.format import Formats
from reference.kv_cache import KVCache
from reference.transformer import Transformer, TransformerConfig
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun

GOLDENS = np.load(Path(tiny.__file__).with_name("tiny.npz"))
FLOAT32 = jnp.dtype(jnp.float32)
TOLERANCE = {"rtol": 2e-4, "atol": 2e-4}


@pytest.fixture(params=tiny.CONFIGS, scope="module")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Name of a tiny checkpoint, and the decoder with its weights."""
    name = request.param
    directory = write_checkpoint(tmp_path_factory.mktemp(name), tiny.CONFIGS[name])
    model = load_model(str(directory))
    return name, PagedRun(model.config, model.graphdef, model.params)


def test_logits_and_greedy_tokens_are_those_of_transformers(case: Any) -> None:
    name, run = case
    logits = run.reset().feed(tiny.PROMPT)
    np.testing.assert_allclose(logits[tiny.ROWS], GOLDENS[f"{name}.logits"], **TOLERANCE)
    if name in tiny.GREEDY:
        expected = GOLDENS[f"{name}.greedy"].tolist()
        assert run.reset().greedy(tiny.PROMPT, len(expected)) == expected


def reference_logits(
    config: dict[str, Any],
    token_ids: list[int],
    weights: dict[str, np.ndarray] | None = None,
    *,
    oracle: Transformer | None = None,
) -> np.ndarray:
    """Logits [T, V] of the oracle with the same weights.

    Args:
        weights: None: those of the tiny checkpoint.
        oracle: None: that of the configuration.
    """
    if oracle is None:
        fields = TransformerConfig.__dataclass_fields__
        known = {name: value for name, value in config.items() if name in fields}
        oracle = Transformer(TransformerConfig(**known), weights or tiny.weights(config))
    oracle_config = oracle.config
    length = len(token_ids)
    cache = KVCache(
        num_layers=oracle_config.num_hidden_layers,
        num_blocks=1,
        num_kv_heads=oracle_config.num_key_value_heads,
        block_size=length,
        head_dim=oracle_config.head_dim,
    )
    everything = np.arange(length)
    one_block, lens, starts = np.array([[0]]), np.array([length]), np.array([0, length])
    hidden = oracle.forward(
        np.array(token_ids), everything, cache, one_block, lens, starts, slot_mapping=everything
    )
    return oracle.compute_logits(hidden)


def test_the_reference_agrees(case: Any) -> None:
    name, run = case
    expected = reference_logits(tiny.CONFIGS[name], tiny.PROMPT)
    np.testing.assert_allclose(expected[tiny.ROWS], GOLDENS[f"{name}.logits"], **TOLERANCE)
    np.testing.assert_allclose(run.reset().feed(tiny.PROMPT), expected, **TOLERANCE)


@pytest.mark.parametrize("kind", ["attention_bias", "mlp_bias"])
def test_biases_of_one_kind(kind: str, tmp_path: Path) -> None:
    config = tiny.CONFIGS["plain"] | {kind: True}
    model = load_model(str(write_checkpoint(tmp_path, config)))
    found = PagedRun(model.config, model.graphdef, model.params).feed(tiny.PROMPT)
    np.testing.assert_allclose(found, reference_logits(config, tiny.PROMPT), **TOLERANCE)


@pytest.mark.parametrize("name", ["biases", "mistral_window", "tied"])
@pytest.mark.parametrize("formats", [Formats(Dense(), Dense()), Formats(IndexedDense(), Dense())])
@pytest.mark.slow
def test_all_formats_are_the_same_model(name: str, formats: Formats) -> None:
    """What a GPU runs, and a CPU without kernels, against what this device chooses."""
    config = config_from_hf(tiny.CONFIGS[name])
    whole = dummy_run(config, formats_for(FLOAT32)).feed(tiny.PROMPT)
    run = dummy_run(config, formats)
    parts = [run.feed(tiny.PROMPT[start : start + 20]) for start in (0, 20)]
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=1e-4, atol=1e-5)


def dummy_run(config: ModelConfig, formats: Formats) -> PagedRun:
    """The same random weights in any formats."""
    spec = config.spec
    decoder = nnx.eval_shape(lambda: Decoder(spec, dtype=FLOAT32, formats=formats))
    graphdef, state = nnx.split(decoder)
    params = fill_state(state, random_leaves(abstract_leaves(state, spec), seed=5))
    return PagedRun(config, graphdef, params)


def test_the_compiled_step_copies_neither_cache_nor_weights() -> None:
    """Donation works, and no instruction makes another array as large as one of the matrices."""
    config = tiny.CONFIGS["plain"] | {"hidden_size": 64, "intermediate_size": 192}
    model_config = config_from_hf(config | {"num_hidden_layers": 3})
    spec = model_config.spec
    graphdef, state = abstract_decoder(spec, "float32")
    arrays = random_leaves(abstract_leaves(state, spec), seed=0)
    run = PagedRun(model_config, graphdef, fill_state(state, arrays), num_blocks=512)
    compiled = run.step.lower(*run.arguments([3])).compile()
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes == run.kv_cache.nbytes
    stacks = [a for a in jax.tree.leaves(arrays) if a.ndim == 4]  # in panels
    smallest_matrix = min(a.nbytes // len(a) for a in stacks)
    assert memory.temp_size_in_bytes < run.kv_cache.nbytes // 4
    for line in compiled.as_text().splitlines():
        made = line.partition("(")[0]  # its name, shape and operation, not its operands
        if made.endswith(" copy") or "dynamic-slice" in made:
            assert result_bytes(line) < smallest_matrix, line


def result_bytes(instruction: str) -> int:
    """Size of what an HLO line such as `%a = f32[3,4]{1,0} copy(%b)` makes; 0 for a tuple."""
    result = instruction.split(" = ", 1)[-1].strip()
    if not result.startswith(("f32[", "bf16[")):
        return 0
    sizes = result[result.index("[") + 1 : result.index("]")]
    return 4 * int(np.prod([int(size) for size in sizes.split(",") if size]))
