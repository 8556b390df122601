"""The specification of one device's share of a model, and which numbers of devices fit."""

import dataclasses
from collections.abc import Callable, Collection

from jax_engine.errors import ConfigError
from jax_engine.layer_spec import AttentionSpec, ExpertsSpec, LayerSpec, MlpSpec
from jax_engine.model_spec import LayerGroup, ModelSpec
from jax_engine.parallel.sums import leaves_of, leaves_of_experts


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
        names: Of products whose inputs devices share, as `abstract_leaves` has them.
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
