"""`hf_overrides`: edits of config.json by the user.

config.json may name one thing in several ways, and a family reads one of them first. What the user
names counts, whichever name it is: others of the same thing are changed with it, or removed.
"""

import copy
from collections.abc import Mapping
from typing import Any

from jax_engine.errors import ConfigError
from jax_engine.models.families.hf_config import FULL, SLIDING
from jax_engine.models.hf_fields import PARTIAL, SYNONYMS
from jax_engine.modes import HfOverrides

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
