"""The specification of one device's share of a model, and of the layers of one stage.

Tensor parallelism gives each device a share of every layer; only some numbers of devices fit.

Pipeline parallelism gives each device a stage: a run of neighbouring layers. The first stage has
the embedding, too, and the last one the final norm and the head. Each hands on the residual stream
to the next.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping

from jax_engine.checks import shown
from jax_engine.errors import ConfigError
from jax_engine.model_spec import (
    AttentionSpec,
    ExpertsSpec,
    LayerGroup,
    LayerSpec,
    MlpSpec,
    ModelSpec,
)
from jax_engine.parallel.collectives import leaves_of, leaves_of_experts


def divided(spec: ModelSpec, size: int) -> ModelSpec:
    """The specification of each of `size` devices that share a model.

    A device has H / size query heads and their KV heads, F / size of each feed-forward network,
    and V / size rows of embedding and head, rounded up. A KV head that several devices need is on
    each of them, and so are latents. Norms, routers and learned positions are whole on each device.

    Raises:
        ConfigError: The model's numbers are not multiples of `size`.
    """
    if size == 1:
        return spec
    check_size(spec, size)
    return dataclasses.replace(_each(spec, lambda layer: _layer(layer, size)), shared_by=size)


def check_size(spec: ModelSpec, size: int) -> None:
    """Raises ConfigError if so many devices cannot share a model, with the numbers that can."""
    if not fits(spec, size):
        raise ConfigError(
            f"tensor_parallel_size must divide {_numbers(spec)}: "
            f"{listed(sizes_that_fit(spec))}, got {size}"
        )


def with_dealt_experts(spec: ModelSpec) -> ModelSpec:
    """The whole model, whose devices are to have whole experts, some of them (expert parallel).

    Raises:
        ConfigError: It has no experts.
    """
    if not spec.experts:
        raise ConfigError(
            "enable_expert_parallel must be False for a model without experts, got True"
        )

    def dealt(layer: LayerSpec) -> LayerSpec:
        if isinstance(layer.mlp, MlpSpec):
            return layer
        return dataclasses.replace(layer, mlp=dataclasses.replace(layer.mlp, dealt=True))

    return _each(spec, dealt)


def with_whole_rows(spec: ModelSpec, names: Collection[str]) -> ModelSpec:
    """The whole model, of whose leaves with these names devices are to have whole rows.

    Args:
        names: Names of products whose inputs devices share, as `abstract_leaves` has them.
    """

    def network(one: MlpSpec, name: str) -> MlpSpec:
        return dataclasses.replace(one, whole_rows=f"{name}.down.weight" in names)

    def of_layer(layer: LayerSpec, prefix: str) -> LayerSpec:
        mlp, rows = layer.mlp, f"{prefix}.attention.o.weight" in names
        if isinstance(mlp, MlpSpec):
            own: MlpSpec | ExpertsSpec = network(mlp, f"{prefix}.mlp")
        else:
            shared = mlp.shared and network(mlp.shared, f"{prefix}.experts.shared")
            expert = network(mlp.expert, f"{prefix}.experts")
            own = dataclasses.replace(mlp, expert=expert, shared=shared)
        attention = dataclasses.replace(layer.attention, whole_rows=rows)
        return dataclasses.replace(layer, attention=attention, mlp=own)

    def of_group(number: int, group: LayerGroup) -> LayerGroup:
        layers = enumerate(group.pattern)
        pattern = (of_layer(one, f"groups.{number}.places.{place}") for place, one in layers)
        return dataclasses.replace(group, pattern=tuple(pattern))

    groups = tuple(of_group(number, group) for number, group in enumerate(spec.groups))
    return dataclasses.replace(spec, groups=groups)


def in_leaves(spec: ModelSpec) -> ModelSpec:
    """The whole model on one device that adds up in the order of several ones: see `leaves_of`."""
    return _each(spec, lambda layer: _layer(layer, 1))


def with_repeated_heads(spec: ModelSpec, size: int) -> ModelSpec:
    """The whole model as `size` devices hold it: with at least one KV head for each of them.

    Latents are of no head: each device has all of them.
    """

    def repeated(layer: LayerSpec) -> LayerSpec:
        heads = max(layer.attention.num_kv_heads, size)
        attention = dataclasses.replace(layer.attention, num_kv_heads=heads)
        return dataclasses.replace(layer, attention=attention)

    return spec if size == 1 or spec.has_latents else _each(spec, repeated)


def fits(spec: ModelSpec, size: int) -> bool:
    """Whether `size` devices can share all heads and feed-forward networks evenly."""
    heads = all(
        one.num_heads % size == 0 and (one.num_kv_heads % size == 0 or size % one.num_kv_heads == 0)
        for one in spec.attentions
    )
    counts = [*_widths(spec), *_dealt(spec)]
    return heads and all(count % size == 0 for count in counts)


def _each(spec: ModelSpec, change: Callable[[LayerSpec], LayerSpec]) -> ModelSpec:
    groups = tuple(
        LayerGroup(tuple(change(layer) for layer in group.pattern), group.repeats)
        for group in spec.groups
    )
    return dataclasses.replace(spec, groups=groups)


def _layer(layer: LayerSpec, size: int) -> LayerSpec:
    return dataclasses.replace(
        layer, attention=_attention(layer.attention, size), mlp=_mlp(layer.mlp, size)
    )


def _attention(spec: AttentionSpec, size: int) -> AttentionSpec:
    heads = spec.num_heads // size
    return dataclasses.replace(
        spec,
        num_heads=heads,
        num_kv_heads=max(1, spec.num_kv_heads // size),
        shared_by=size,
        kv_copies=max(1, size // spec.num_kv_heads),
        leaves=leaves_of(heads * spec.value_dim, size),
    )


def _mlp(spec: MlpSpec | ExpertsSpec, size: int) -> MlpSpec | ExpertsSpec:
    if isinstance(spec, MlpSpec):
        return _network(spec, size)
    shared = None if spec.shared is None else _network(spec.shared, size)
    if not spec.dealt:
        return dataclasses.replace(spec, expert=_network(spec.expert, size), shared=shared)
    leaves = leaves_of_experts(spec.router.num_experts, size)
    return dataclasses.replace(spec, shared=shared, dealt_to=size, leaves=leaves)


def _network(spec: MlpSpec, size: int) -> MlpSpec:
    width = spec.width // size
    return dataclasses.replace(spec, width=width, shared_by=size, leaves=leaves_of(width, size))


def _networks(spec: ModelSpec) -> list[MlpSpec]:
    found = []
    for layer in spec.layers:
        mlp = layer.mlp
        if isinstance(mlp, MlpSpec):
            found.append(mlp)
        else:
            found += [*([] if mlp.dealt else [mlp.expert]), *filter(None, [mlp.shared])]
    return found


def _dealt(spec: ModelSpec) -> list[int]:
    """The different numbers of experts that are dealt out."""
    return sorted({one.router.num_experts for one in spec.experts if one.dealt})


def _widths(spec: ModelSpec) -> list[int]:
    """The different widths of feed-forward networks that are cut."""
    return sorted({one.width for one in _networks(spec)})


def _numbers(spec: ModelSpec) -> str:
    """The numbers of a model that its devices share, for people."""
    heads = sorted({one.num_heads for one in spec.attentions})
    parts = [f"{count} heads" for count in heads]
    if not spec.has_latents:
        parts += [f"{spec.num_kv_heads} KV heads (or be a multiple of these)"]
    parts += [f"a feed-forward network of {width}" for width in _widths(spec)]
    parts += [f"{count} experts" for count in _dealt(spec)]
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def sizes_that_fit(spec: ModelSpec) -> list[int]:
    """How many devices can share all heads and feed-forward networks evenly."""
    return [size for size in range(1, spec.num_heads + 1) if fits(spec, size)]


def listed(sizes: list[int]) -> str:
    """Sizes for people: "1, 2 or 4"."""
    found = [str(size) for size in sizes]
    return found[0] if len(found) == 1 else ", ".join(found[:-1]) + " or " + found[-1]


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
    value = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if value and size > 1:
        counts = _layer_counts(value, num_layers, size)
    else:
        counts = [num_layers // size] * size
        for place in range(num_layers % size):
            counts[-2 - place] += 1
    ends = [sum(counts[: stage + 1]) for stage in range(size)]
    return [range(end - count, end) for count, end in zip(counts, ends, strict=True)]


def _layer_counts(value: str, num_layers: int, size: int) -> list[int]:
    parts = [part.strip() for part in value.split(",")]
    known = all(part.isdecimal() and len(part) < 10 for part in parts)
    counts = [int(part) for part in parts] if known else []
    if len(counts) != size or sum(counts) != num_layers or min(counts) < 1:
        raise ConfigError(
            f"the variable {VARIABLE} must name the numbers of layers of {size} stages, at least 1 "
            f"each and {num_layers} together, with commas between them, got {shown(value)}"
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
