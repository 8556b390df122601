"""Which layers each of several stages has (pipeline parallelism), and the specification of them.

A stage is a run of neighbouring layers. The first stage has the embedding, too, and the last one
the final norm and the head. Each hands on the residual stream to the next.
"""

import dataclasses
import os
from collections.abc import Mapping

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.layer_spec import LayerSpec
from jax_engine.model_spec import LayerGroup, ModelSpec

VARIABLE = "VLLM_PP_LAYER_PARTITION"


def layers_of_stages(
    num_layers: int, size: int, environment: Mapping[str, str] | None = None
) -> list[range]:
    """The layers of each of `size` stages, as vLLM divides them.

    Each has as many. Those that are left go to the stages before the last, one to each, the later
    ones first: the last stage has the head.

    Args:
        environment: Its variable VLLM_PP_LAYER_PARTITION says how many layers each stage has,
            as in "14,16". None: that of this process.

    Raises:
        ConfigError: There are fewer layers than stages, or the variable does not say the numbers
            of all stages.
    """
    if size > num_layers:
        raise ConfigError(
            f"pipeline_parallel_size must be at most the number of layers ({num_layers}), got "
            f"{size}"
        )
    said = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if said and size > 1:
        counts = _said(said, num_layers, size)
    else:
        counts = [num_layers // size] * size
        for place in range(num_layers % size):
            counts[-2 - place] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(size)]
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]


def _said(said: str, num_layers: int, size: int) -> list[int]:
    parts = [part.strip() for part in said.split(",")]
    known = all(part.isdecimal() and len(part) < 10 for part in parts)
    counts = [int(part) for part in parts] if known else []
    if len(counts) != size or sum(counts) != num_layers or min(counts) < 1:
        raise ConfigError(
            f"the variable {VARIABLE} must name the numbers of layers of {size} stages, at least 1 "
            f"each and {num_layers} together, with commas between them, got {shown(said)}"
        )
    return counts


def staged(spec: ModelSpec, layers: range) -> ModelSpec:
    """The specification of the stage that has these layers of a model.

    A border may fall within a pattern: then the part of it that the stage has is a group of its
    own.
    """
    if len(layers) == spec.num_layers:
        return spec
    groups: list[LayerGroup] = []
    first = 0
    for group in spec.groups:
        start, stop = max(layers.start - first, 0), min(layers.stop - first, group.num_layers)
        if start < stop:
            groups += _part(group, start, stop)
        first += group.num_layers
    return dataclasses.replace(
        spec,
        groups=tuple(groups),
        first_layer=layers.start,
        has_embedding=layers.start == 0,
        has_head=layers.stop == spec.num_layers,
    )


def _part(group: LayerGroup, start: int, stop: int) -> list[LayerGroup]:
    """Layers start .. stop - 1 of a group: the rest of a pattern, whole ones, the begin of one."""
    period = len(group.pattern)
    found = []
    while start < stop:
        repetition, place = divmod(start, period)
        repeats = 1 if place else max(1, (stop - start) // period)
        end = min(stop, start + repeats * period - place)
        places = group.pattern[place : place + (end - start if repeats == 1 else period)]
        chosen = slice(repetition, repetition + repeats)
        found.append(LayerGroup(tuple(_repeated(layer, chosen) for layer in places), repeats))
        start = end
    return found


def _repeated(layer: LayerSpec, chosen: slice) -> LayerSpec:
    """A layer of a pattern, with the numbers of these repetitions alone."""
    attention = layer.attention
    rope, window = attention.rope, attention.window
    own = dataclasses.replace(
        attention,
        rope=rope[chosen] if isinstance(rope, tuple) else rope,
        window=window[chosen] if isinstance(window, tuple) else window,
    )
    return dataclasses.replace(layer, attention=own)
