"""What every config.json is checked for, whichever family it names; and older names of fields.

A family reads the fields of its schema and no others. Fields that would change what is computed,
and that no family knows or this one does not read, are refused here by name.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from jax_engine.errors import ConfigError
from jax_engine.file_schema import checked, short
from jax_engine.model_spec import ModelSpec
from jax_engine.models.families.hf_config import FILE, FULL, SLIDING, check_layer_types

# Names of one thing. A field that is absent is read from one of the others.
SYNONYMS = (
    ("hidden_size", "n_embd", "n_embed", "d_model"),
    ("num_hidden_layers", "n_layer", "n_layers"),
    ("num_attention_heads", "n_head", "n_heads"),
    ("max_position_embeddings", "n_positions"),
    ("num_kv_heads", "n_head_kv"),
    ("num_local_experts", "num_experts", "n_routed_experts"),
    ("layer_norm_eps", "norm_eps"),
    ("rope_theta", "rotary_emb_base"),
    ("partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent", "rope_percentage"),
)
(PARTIAL,) = (names for names in SYNONYMS if "partial_rotary_factor" in names)
# Keys of a rotary embedding that no type here reads.
_ROPE_KEYS = ("alpha", "mrope_section", "short_mscale", "long_mscale", "llama_4_scaling_beta")


class CommonFields(msgspec.Struct, frozen=True):
    """Fields that any config.json may have."""

    is_encoder_decoder: bool | None = False
    is_causal: bool | None = True
    layer_types: list[str] | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None


def with_known_names(raw: Mapping[str, Any], fields: type[Any]) -> Mapping[str, Any]:
    """The same fields, with the names that a family's schema has for them.

    Args:
        fields: the schema.
    """
    own = {one.encode_name for one in msgspec.structs.fields(fields)}
    found = dict(raw)
    for names in SYNONYMS:
        wanted = [name for name in names if name in own]
        others = [name for name in names if name in raw and name not in own]
        if len(wanted) == 1 and wanted[0] not in raw and others:
            found[wanted[0]] = raw[others[0]]
    return found


def check_fields(raw: Mapping[str, Any], family_fields: type[Any]) -> None:
    """Refuses what no family computes, and what this family would overlook.

    Raises:
        ConfigError: the message has the field, its value, and what is known.
    """
    fields = checked(raw, CommonFields, FILE)
    if fields.is_encoder_decoder or fields.is_causal is False:
        name = "is_encoder_decoder" if fields.is_encoder_decoder else "is_causal"
        value = getattr(fields, name)
        raise ConfigError(f"{FILE}: {name} {value!r} is not supported; known: {not value!r}.")
    own = {one.encode_name for one in msgspec.structs.fields(family_fields)}
    types = fields.layer_types or ()
    check_layer_types(types)
    if "layer_types" not in own and len(set(types)) > 1:
        raise ConfigError(
            f"{FILE}: layer_types {short(list(types))} is not supported for this architecture; "
            "known: layers of one type."
        )
    for name in ("rope_scaling", "rope_parameters"):
        _check_rope(name, getattr(fields, name) or {}, family_fields)


def _check_rope(name: str, rope: Mapping[str, Any], family_fields: type[Any]) -> None:
    """Refuses keys that would be overlooked."""
    types = [kind for kind in (FULL, SLIDING) if rope.get(kind) is not None]
    if types and not getattr(family_fields, "two_ropes", False):
        raise ConfigError(
            f"{FILE}: {name}.{types[0]} is not supported for this architecture; known: one rotary "
            "embedding for all layers."
        )
    read = getattr(family_fields, "rope_keys", ())
    for one in (rope, *(rope[kind] for kind in types)):
        for key in _ROPE_KEYS:
            if isinstance(one, Mapping) and one.get(key) is not None and key not in read:
                raise ConfigError(
                    f"{FILE}: {name}.{key} {short(one[key])} is not supported for this "
                    "architecture; known: null."
                )


def check_rotation(raw: Mapping[str, Any], spec: ModelSpec) -> None:
    """Refuses a part of heads to rotate that the family has not read.

    Raises:
        ConfigError: `partial_rotary_factor`, or an older name of it, asks for another part.
    """
    ropes = (raw.get(name) or {} for name in ("rope_parameters", "rope_scaling"))
    for fields in (*ropes, raw):
        for name in PARTIAL:
            factor = fields.get(name)
            if isinstance(factor, int | float):
                _check_factor(name, factor, spec)
                return


def _check_factor(name: str, factor: float, spec: ModelSpec) -> None:
    for one in spec.attentions:
        if one.ropes and int(one.head_dim * factor) != one.rotated:
            raise ConfigError(
                f"{FILE}: {name} {factor!r} is not supported for this architecture; "
                f"known: {one.rotated / one.head_dim!r}."
            )
