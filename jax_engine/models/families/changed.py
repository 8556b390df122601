"""Makes a specification that differs from another one in a few fields."""

import dataclasses
from typing import Any

from jax_engine.model_spec import LayerSpec, ModelSpec


def changed(
    spec: ModelSpec,
    *,
    attention: dict[str, Any] | None = None,
    mlp: dict[str, Any] | None = None,
    layer: dict[str, Any] | None = None,
    **model: Any,
) -> ModelSpec:
    """The same model with other values of some fields.

    Args:
        attention: fields of the `AttentionSpec` of every layer.
        mlp: fields of the `MlpSpec` of every layer.
        layer: fields of every `LayerSpec`.
        model: fields of the `ModelSpec`.
    """

    def of_layer(one: LayerSpec) -> LayerSpec:
        one = dataclasses.replace(one, **(layer or {}))
        return dataclasses.replace(
            one,
            attention=dataclasses.replace(one.attention, **(attention or {})),
            mlp=dataclasses.replace(one.mlp, **(mlp or {})),
        )

    groups = (
        dataclasses.replace(group, pattern=tuple(map(of_layer, group.pattern)))
        for group in spec.groups
    )
    return dataclasses.replace(spec, groups=tuple(groups), **model)
