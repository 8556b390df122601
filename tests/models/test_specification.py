"""Models of several groups and patterns of layers, against the oracle and against one group."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jax_engine.errors import ConfigError
from jax_engine.model_spec import LayerGroup, LayerSpec, ModelSpec, RopeConfig
from jax_engine.models.families import llama
from jax_engine.models.leaves import abstract_leaves, fill_state
from jax_engine.models.model_loader import abstract_decoder, load_model
from jax_engine.models.registry import config_from_hf
from jax_engine.models.weight_loader import random_leaves
from reference.transformer import Transformer, TransformerConfig
from tests.golden import tiny_checkpoints as tiny
from tests.models.checkpoints import write_checkpoint
from tests.models.paged import PagedRun
from tests.models.test_decoder import TOLERANCE, reference_logits

LAYERS = 5
CONFIG = tiny.CONFIGS["biases"] | {"num_hidden_layers": LAYERS}
PLAIN = config_from_hf(tiny.CONFIGS["plain"] | {"num_hidden_layers": LAYERS})


def grouped(spec: ModelSpec, *groups: tuple[int, int]) -> ModelSpec:
    """The same layers in groups of (length of the pattern, repetitions)."""
    ((layer,),) = (group.pattern for group in spec.groups)
    made = tuple(LayerGroup((layer,) * period, repeats) for period, repeats in groups)
    return dataclasses.replace(spec, groups=made)


def dummy_logits(spec: ModelSpec) -> np.ndarray:
    """Logits of random weights, which depend on a layer's number and not on its group."""
    graphdef, state = abstract_decoder(spec, "float32")
    params = fill_state(state, random_leaves(abstract_leaves(state, spec), seed=5))
    return PagedRun(PLAIN, graphdef, params).feed(tiny.PROMPT)


@pytest.mark.parametrize(
    "groups", [[(5, 1)], [(2, 2), (1, 1)], [(1, 1), (2, 2)], [(1, 2), (3, 1)]], ids=str
)
@pytest.mark.slow
def test_any_grouping_is_the_same_model(groups: list[tuple[int, int]]) -> None:
    uniform = PLAIN.spec
    found = dummy_logits(grouped(uniform, *groups))
    np.testing.assert_allclose(found, dummy_logits(uniform), rtol=1e-5, atol=1e-6)


class OfWindows(Transformer):
    """The oracle with a window for each layer."""

    def __init__(self, windows: list[int | None], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.windows = windows

    def _attention(self, layer: int, *arguments: Any) -> np.ndarray:
        self.config = dataclasses.replace(self.config, sliding_window=self.windows[layer])
        return super()._attention(layer, *arguments)


def biased_pattern(spec: ModelSpec) -> tuple[ModelSpec, list[int | None], set[str]]:
    """Layers of four kinds; each layer's window; and what biases there are not.

    Twice a layer with a window and biases, and one without; then one without any bias of the MLP.
    """
    (layer,) = spec.groups[0].pattern
    no_bias = dataclasses.replace(layer.attention, qkv_bias=False, output_bias=False, window=None)
    near = dataclasses.replace(layer, attention=dataclasses.replace(layer.attention, window=6))
    far = dataclasses.replace(layer, attention=no_bias)
    last = dataclasses.replace(layer, mlp=dataclasses.replace(layer.mlp, bias=False))
    groups = LayerGroup((near, far), 2), LayerGroup((last,), 1)
    missing = {f"layers.{layer}.self_attn" for layer in (1, 3)} | {"layers.4.mlp"}
    return dataclasses.replace(spec, groups=groups), [6, None, 6, None, None], missing


def test_layers_that_differ_agree_with_the_oracle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from a checkpoint, chunk by chunk."""
    spec, windows, missing = biased_pattern(config_from_hf(CONFIG).spec)

    def is_missing(name: str) -> bool:
        return name.endswith(".bias") and any(part in name for part in missing)

    tensors = {name: w for name, w in tiny.weights(CONFIG).items() if not is_missing(name)}
    directory = write_checkpoint(tmp_path, CONFIG, tensors)
    monkeypatch.setattr(llama, "specification", lambda fields: spec)
    model = load_model(str(directory))
    run = PagedRun(model.config, model.graphdef, model.params)
    found = np.concatenate([run.feed(tiny.PROMPT[:20]), run.feed(tiny.PROMPT[20:])])
    zeros = {name: 0 * w for name, w in tiny.weights(CONFIG).items() if is_missing(name)}
    fields = TransformerConfig.__dataclass_fields__
    sizes = TransformerConfig(**{name: v for name, v in CONFIG.items() if name in fields})
    oracle = OfWindows(windows, sizes, tensors | zeros)
    expected = reference_logits(CONFIG, tiny.PROMPT, oracle=oracle)
    np.testing.assert_allclose(found, expected, **TOLERANCE)
    uniform = reference_logits(CONFIG, tiny.PROMPT, tensors | zeros)
    assert np.abs(uniform - expected).max() > 10 * TOLERANCE["atol"]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4))
def test_every_layer_has_one_place(groups: list[tuple[int, int]]) -> None:
    """Places are in the order in which layers run: by group, then by repetition."""
    spec = grouped(PLAIN.spec, *groups)
    order = [
        spec.numbers(group, place)[repetition]
        for group, (period, repeats) in enumerate(groups)
        for repetition in range(repeats)
        for place in range(period)
    ]
    assert order == list(range(spec.num_layers))
    for group, (period, repeats) in enumerate(groups):
        assert all(len(spec.numbers(group, place)) == repeats for place in range(period))


@pytest.mark.parametrize("by_number", [False, True])
def test_the_program_does_not_grow_with_repetitions(by_number: bool) -> None:
    """Instructions of the optimised HLO of 8 and of 64 layers.

    Not its length: it also says where each was traced, which depends on the tests before.
    """
    programs = [compiled(num_layers, by_number) for num_layers in (8, 64)]
    sizes = [sum(" = " in line for line in text.splitlines()) for text in programs]
    assert sizes[0] > 100
    assert abs(sizes[1] - sizes[0]) < 0.02 * sizes[0]


def compiled(num_layers: int, by_number: bool) -> str:
    """Optimised HLO of a step of a model with a window on every other layer.

    Args:
        by_number: whether its layers are one scan with a number for each, or a pattern of two.
    """
    (layer,) = PLAIN.spec.groups[0].pattern
    near = dataclasses.replace(layer.attention, window=6)
    pattern, repeats = (dataclasses.replace(layer, attention=near), layer), num_layers // 2
    if by_number:
        ropes = RopeConfig(70.0), None
        each = dataclasses.replace(near, window=(6, None) * repeats, rope=ropes * repeats)
        pattern, repeats = (dataclasses.replace(layer, attention=each),), num_layers
    spec = dataclasses.replace(PLAIN.spec, groups=(LayerGroup(pattern, repeats),))
    graphdef, state = abstract_decoder(spec, "float32")
    run = PagedRun(dataclasses.replace(PLAIN, spec=spec), graphdef, state)
    arguments = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), run.arguments([3]))
    text = run.step.lower(*arguments).compile().as_text()
    assert text is not None
    return text


def test_layers_with_other_kv_heads_are_refused() -> None:
    spec = PLAIN.spec
    (layer,) = spec.groups[0].pattern
    other: LayerSpec = dataclasses.replace(
        layer, attention=dataclasses.replace(layer.attention, num_kv_heads=1)
    )
    with pytest.raises(ConfigError, match=r"num_kv_heads, head_dim.*\(2, 1, 8\), \(2, 2, 8\)"):
        dataclasses.replace(spec, groups=(LayerGroup((layer, other), 1),))
