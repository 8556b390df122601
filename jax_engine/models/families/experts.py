"""What the families with mixtures of experts share: layers with and without, and their tensors."""

import dataclasses
from collections.abc import Iterable, Sequence

from jax_engine.model_spec import ExpertsSpec, LayerGroup, LayerSpec, ModelSpec
from jax_engine.weights.transforms import Concatenate, Declaration, Stack


def with_experts(spec: ModelSpec, experts: ExpertsSpec, sparse: Sequence[bool]) -> ModelSpec:
    """A model of equal layers, with experts in some of them.

    Args:
        sparse: for each layer, whether it has experts.
    """
    ((dense,),) = (group.pattern for group in spec.groups)
    layer = dataclasses.replace(dense, mlp=experts)
    groups = grouped([layer if one else dense for one in sparse])
    return dataclasses.replace(spec, groups=groups)


def grouped(layers: Sequence[LayerSpec]) -> tuple[LayerGroup, ...]:
    """Groups of repeated patterns: from the front, each pattern covers as many layers as it can.

    A setting that is a tuple has one value for each layer of the model; each group takes its own.
    """
    groups, first = [], 0
    while first < len(layers):
        period, repeats = _longest(layers[first:])
        last = first + period * repeats
        places = range(first, first + period)
        pattern = tuple(_at(layers[place], range(place, last, period)) for place in places)
        groups.append(LayerGroup(pattern, repeats))
        first = last
    return tuple(groups)


def _longest(layers: Sequence[LayerSpec]) -> tuple[int, int]:
    """The length and the repetitions of the pattern that covers most layers from the first on."""
    found = (1, 1)
    for period in range(1, len(layers) // 2 + 1):
        repeats = 1
        while layers[repeats * period : (repeats + 1) * period] == layers[:period]:
            repeats += 1
        if repeats > 1 and period * repeats > found[0] * found[1]:
            found = (period, repeats)
    return found


def _at(layer: LayerSpec, numbers: Iterable[int]) -> LayerSpec:
    """The layer, whose tuples keep the settings of the layers with these numbers."""
    taken = list(numbers)

    def chosen[T](setting: T | tuple[T, ...]) -> T | tuple[T, ...]:
        return tuple(setting[n] for n in taken) if isinstance(setting, tuple) else setting

    old = layer.attention
    attention = dataclasses.replace(old, rope=chosen(old.rope), window=chosen(old.window))
    return dataclasses.replace(layer, attention=attention)


def expert_weights(
    spec: ModelSpec, prefix: str, names: tuple[str, str, str]
) -> dict[str, Declaration]:
    """The tensors of experts that are stored one by one; none if no layer has experts.

    Args:
        prefix: what their names begin with; {expert} is the number.
        names: names of gate, up and down.
    """
    if not spec.experts:  # the dense layers at the front are all that there are
        return {}
    count = spec.experts[0].router.num_experts
    gate, up, down = (f"{prefix}.{name}.{{kind}}" for name in names)
    return {
        "layers.experts.gate_up": Stack("expert", range(count), Concatenate((gate, up))),
        "layers.experts.down": Stack("expert", range(count), down),
    }


def shared_weights(prefix: str) -> dict[str, Declaration]:
    """The tensors of a network that all tokens use, with Llama's names."""
    gate, up, down = (f"{prefix}.{name}_proj.{{kind}}" for name in ("gate", "up", "down"))
    return {
        "layers.experts.shared.gate_up": Concatenate((gate, up)),
        "layers.experts.shared.down": down,
    }
