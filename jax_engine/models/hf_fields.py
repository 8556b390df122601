"""The fields of config.json before a family reads them: names, checks, and `hf_overrides`.

A family reads the fields of its schema and no others. Older names of a field become the one that
the schema has. Fields that would change what is computed, and that no family knows or this one does
not read, are refused here by name.

`hf_overrides` are edits of config.json by the user. config.json may name one thing in several ways,
and a family reads one of them first. What the user names counts, whichever name it is: others of
the same thing are changed with it, or removed.
"""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec

from jax_engine.config.engine_config import HfOverrides
from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import checked, short
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
    check_layer_types(types, known=getattr(family_fields, "layer_kinds", (SLIDING, FULL)))
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


Fields = dict[str, Any]
_ROPES = ("rope_scaling", "rope_parameters")
# Fields of config.json, and the key within a rotary embedding that says the same.
_IN_ROPE = dict.fromkeys(PARTIAL, "partial_rotary_factor") | {
    "rope_theta": "rope_theta",
    "rotary_emb_base": "rope_theta",
    "original_max_position_embeddings": "original_max_position_embeddings",
}
_LOCAL_THETA = "rope_local_base_freq"
# What stays of a rotary embedding that is stretched in another way.
_KEPT = ("rope_theta", "partial_rotary_factor", FULL, SLIDING)


def overridden(raw: Fields, overrides: HfOverrides | None) -> Fields:
    """The fields of config.json after the overrides; nested dicts are merged.

    A rotary embedding of another type than the file's replaces it, but for its base and the part of
    heads that is rotated.

    Raises:
        ConfigError: A function fails, or does not return a dict.
    """
    if overrides is None:
        return raw
    if isinstance(overrides, Mapping):
        given, old = dict(overrides), {name: raw.get(name) for name in _ROPES}
        changed = _merged(raw, given)
    else:
        changed = _called(raw, overrides)
        given = {name: one for name, one in changed.items() if name not in raw or raw[name] != one}
        # The function has seen what it changes: only an embedding of the other name is merged.
        old = {name: changed.get(name) for name in _ROPES if name not in given}
    for names in SYNONYMS:
        if not given.keys().isdisjoint(names):
            changed = {k: v for k, v in changed.items() if k not in names or k in given}
    return _with_fields_in_rope(_with_one_rope(changed, given, old), given)


def _called(raw: Fields, function: Any) -> Fields:
    try:
        changed = function(copy.deepcopy(raw))
    except Exception as error:  # the user's own code
        raise ConfigError(f"hf_overrides raised {error!r} for the fields of config.json") from error
    if not isinstance(changed, dict):
        raise ConfigError(
            "hf_overrides must return the dict of config.json's fields, got "
            f"{type(changed).__name__}"
        )
    return changed


def _merged(old: Fields, new: Mapping[str, Any]) -> Fields:
    merged = dict(old)
    for name, value in new.items():
        within = old.get(name)
        if isinstance(value, Mapping) and isinstance(within, dict):
            value = _merged(within, value)
        merged[name] = value
    return merged


def _with_one_rope(changed: Fields, given: Fields, old: Fields) -> Fields:
    """One rotary embedding under one name: the file's, with what the user gives under any."""
    names = [name for name in _ROPES if isinstance(given.get(name, 0), Mapping | None)]
    if not names:
        return changed
    rope: Fields = {}
    for name in _ROPES:  # as they are read: the second one counts
        rope |= old[name] if isinstance(old.get(name), dict) else {}
    for name in names:
        rope = _stretched(rope, given[name] or {}, is_none=given[name] is None)
    target = next((name for name in reversed(_ROPES) if old.get(name)), names[-1])
    others = {name: value for name, value in changed.items() if name not in _ROPES}
    return others | {target: rope}


def _stretched(old: Fields, new: Mapping[str, Any], *, is_none: bool) -> Fields:
    """A rotary embedding with the user's keys, or for None without any stretching."""
    if FULL in old and FULL not in new:  # the older form speaks of layers that see all
        return old | {FULL: _stretched(old[FULL] or {}, new, is_none=is_none)}
    if is_none or _kind(new) not in (None, _kind(old)):
        old = {name: value for name, value in old.items() if name in _KEPT}
    elif "type" in new:
        old = {name: value for name, value in old.items() if name != "rope_type"}
    return _merged(old, new)


def _kind(rope: Mapping[str, Any]) -> object:
    return rope.get("rope_type", rope.get("type"))


def _with_fields_in_rope(changed: Fields, given: Fields) -> Fields:
    """The user's fields beside a rotary embedding, which has the same within, put there."""
    own = {key for name in _ROPES if isinstance(given.get(name), Mapping) for key in given[name]}
    for name in _ROPES:
        rope = changed.get(name)
        if not isinstance(rope, dict):
            continue
        for field, key in _IN_ROPE.items():
            if given.get(field) is not None and key not in own:
                rope = _with_key(rope, key, given[field])
        sliding = rope.get(SLIDING)
        if given.get(_LOCAL_THETA) is not None and isinstance(sliding, dict):
            rope = rope | {SLIDING: sliding | {"rope_theta": given[_LOCAL_THETA]}}
        changed = changed | {name: rope}
    return changed


def _with_key(rope: Fields, key: str, value: object) -> Fields:
    """The embedding with another value, where it has one; of two, in those that had the same."""
    kinds = [kind for kind in (FULL, SLIDING) if isinstance(rope.get(kind), dict)]
    if not kinds:
        return rope | {key: value} if key in rope else rope
    old = rope[kinds[0]].get(key)
    return rope | {
        kind: rope[kind] | {key: value}
        for kind in kinds
        if key in rope[kind] and rope[kind][key] == old
    }
