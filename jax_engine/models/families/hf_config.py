"""Reads Hugging Face `config.json` dictionaries: the parts that families share."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from jax_engine.errors import ConfigError
from jax_engine.model_spec import Activation, RopeConfig, RopeType
from jax_engine.models.hf_schemas import RopeFields

FILE = "config.json"
SLIDING, FULL, CHUNKED = "sliding_attention", "full_attention", "chunked_attention"
_ROPE_NAMES = {"default": "none", None: "none", "su": "longrope"}
_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
# Fields of RopeConfig that have the same name in config.json.
_OPTIONS = (
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
    "frequency_factors",
    "short_factor",
    "long_factor",
)
_LONGEST = 2**31 - 1  # the largest 32-bit index


class RopeSource(Protocol):
    """The fields of a configuration that describe rotary embeddings."""

    @property
    def max_position_embeddings(self) -> int: ...
    @property
    def rope_theta(self) -> float: ...
    @property
    def rope_scaling(self) -> RopeFields | None: ...
    @property
    def rope_parameters(self) -> RopeFields | None: ...
    @property
    def original_max_position_embeddings(self) -> int | None: ...


def activation_from_hf(name: str, field: str = "hidden_act") -> Activation:
    """The activation of this name. Raises ConfigError that lists the known ones."""
    if name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise ConfigError(f"{FILE}: {field} {name!r} is not supported; known: {known}.")
    return _ACTIVATIONS[name]


def require(fields: Any, **wanted: Any) -> None:
    """Checks fields whose other values this engine does not compute.

    Raises:
        ConfigError: a field has another value; the message has both.
    """
    for name, value in wanted.items():
        found = getattr(fields, name)
        if found != value:
            raise ConfigError(
                f"{FILE}: {name} {found!r} is not supported for this architecture; "
                f"known: {value!r}."
            )


def require_one_of(fields: Any, name: str, known: Sequence[Any]) -> None:
    """Checks a field that has several known values. Raises ConfigError, as `require` does."""
    found = getattr(fields, name)
    if found not in known:
        raise ConfigError(
            f"{FILE}: {name} {found!r} is not supported for this architecture; "
            f"known: {', '.join(map(repr, known))}."
        )


def token_ids(value: int | list[int] | None) -> tuple[int, ...]:
    """The ids in `eos_token_id`, which is null, one id, or a list."""
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def rope_from_hf(fields: RopeSource) -> RopeConfig:
    """Reads `rope_parameters` (transformers 5), or `rope_theta` with `rope_scaling`."""
    scaling = given(fields.rope_scaling) | given(fields.rope_parameters)
    return rope_of(scaling, fields)


def ropes_by_type(fields: RopeSource) -> tuple[RopeConfig, RopeConfig] | None:
    """The RoPE of layers that see all positions, and that of layers with a window.

    None if `rope_parameters` does not distinguish them.
    """
    by_type = fields.rope_parameters
    if by_type is None or by_type.full_attention is None or by_type.sliding_attention is None:
        return None
    full, sliding = by_type.full_attention, by_type.sliding_attention
    return rope_of(given(full), fields), rope_of(given(sliding), fields)


def rope_of(scaling: Mapping[str, Any], fields: RopeSource) -> RopeConfig:
    """One rotary embedding from a dictionary of `RopeFields`.

    Raises:
        ConfigError: the kind of stretching is unknown, or needs a field that is not there.
    """
    written = scaling.get("rope_type", scaling.get("type"))
    kind = cast(RopeType, _ROPE_NAMES.get(written, written))
    original = scaling.get(
        "original_max_position_embeddings", fields.original_max_position_embeddings
    )
    if original is None and kind in ("llama3", "yarn"):
        original = fields.max_position_embeddings
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in scaling.items()
        if name in _OPTIONS
    }
    if kind in ("yarn", "longrope") and "factor" not in options:
        options["factor"] = fields.max_position_embeddings / (
            original or fields.max_position_embeddings
        )
    elif kind != "none" and "factor" not in options:
        raise ConfigError(f"{FILE}: rope type {kind!r} needs a factor in rope_scaling.")
    for old, new in (("short_factor", "short_factors"), ("long_factor", "long_factors")):
        if old in options:
            options[new] = options.pop(old)
    return RopeConfig(
        theta=scaling.get("rope_theta", fields.rope_theta),
        type=kind,
        original_max_position_embeddings=original,
        **options,
    )


def context_of(max_position_embeddings: int, rope: RopeConfig) -> int:
    """Longest context, RoPE scaling included: at most 2**31 - 1, the largest 32-bit index."""
    longest = max_position_embeddings
    if rope.type == "yarn" and rope.original_max_position_embeddings:
        longest = int(rope.original_max_position_embeddings * rope.factor)
    elif rope.type in ("linear", "dynamic"):
        longest = int(longest * rope.factor)
    return min(longest, _LONGEST)


def given(fields: RopeFields | None) -> dict[str, Any]:
    """The fields that are present and not null."""
    every = {} if fields is None else msgspec.structs.asdict(fields)
    return {name: value for name, value in every.items() if value is not None}


def windows_of(
    layer_types: Sequence[str] | None, window: int | None, num_layers: int
) -> int | tuple[int | None, ...] | None:
    """The window of each layer by `layer_types`; a single one if all layers have the same.

    Args:
        layer_types: "sliding_attention" or "full_attention" for each layer; None: all slide.

    Raises:
        ConfigError: a type is neither of them, or there are more or fewer types than layers.
    """
    if layer_types is None or window is None:
        return window
    check_layer_types(layer_types, num_layers)
    each = tuple(window if one == SLIDING else None for one in layer_types)
    return each[0] if len(set(each)) == 1 else each


def check_layer_types(
    layer_types: Sequence[str],
    num_layers: int | None = None,
    known: Sequence[str] = (SLIDING, FULL),
) -> None:
    """Raises ConfigError, as `windows_of` does; `num_layers` None: any number of them."""
    unknown = [one for one in layer_types if one not in known]
    if unknown:
        listed = ", ".join(map(repr, known))
        raise ConfigError(f"{FILE}: layer_types {unknown[0]!r} is not supported; known: {listed}.")
    if num_layers is not None and len(layer_types) != num_layers:
        raise ConfigError(
            f"{FILE}: layer_types has {len(layer_types)} layers, num_hidden_layers {num_layers}."
        )


def partial_factor(fields: Any, default: float = 1.0) -> float:
    """`partial_rotary_factor`: in `rope_parameters` (transformers 5), or beside it."""
    found = given(fields.rope_scaling) | given(fields.rope_parameters)
    factor: float = found.get("partial_rotary_factor", fields.partial_rotary_factor or default)
    return factor


def partly(head_dim: int, factor: float) -> int | None:
    """How many of a head's numbers are rotated, by `partial_rotary_factor`; None: all."""
    rotated = int(head_dim * factor)
    return None if rotated == head_dim else rotated
