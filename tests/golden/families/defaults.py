"""The defaults of transformers' configurations, as a table: `defaults.json`.

    python -m tests.golden.families.defaults

For each case of the goldens it has, field by field, what transformers' class of configurations
makes of the case's config.json when the file does not have that field. What a class derives from
other fields is in it too: the number of KV heads, the size of a head. It needs transformers alone,
whose version is in the table.
"""

import json
from typing import Any

import msgspec

from jax_engine.models.hf_fields import SYNONYMS
from jax_engine.models.registry import family_of
from tests.golden.families.checkpoints import HERE, cases

FILE = HERE / "defaults.json"
# A rotary embedding is described by these together.
ROPE = frozenset({
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rotary_pct",
    "rotary_emb_base", "rope_local_base_freq", "original_max_position_embeddings",
})  # fmt: skip
_OF_THE_FILE = {"architectures", "transformers_version", "dtype", "model_type"}


def table() -> dict[str, dict[str, Any]]:
    """The values of each case's fields where config.json lacks them."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    found: dict[str, dict[str, Any]] = {}
    for name, case in cases().items():
        config = case["config"]
        kind = CONFIG_MAPPING[config["model_type"]]
        found[name] = {}
        for field in fields_of(config):
            lacking = without(config, field)
            given = {key: one for key, one in lacking.items() if key not in _OF_THE_FILE}
            try:
                made = kind(**given)
            except ZeroDivisionError:  # Exaone 4, without windows, needs the types of layers
                continue
            read = "rope_parameters" if field in ROPE else field
            for synonym in names_of(read):
                if hasattr(made, synonym):
                    value = getattr(made, synonym)
                    found[name][read] = value.to_dict() if hasattr(value, "to_dict") else value
                    break
    return found


def fields_of(config: dict[str, Any]) -> list[str]:
    """The fields that the family of a config.json reads, and that the file may lack."""
    family = family_of(config["architectures"][0])
    return [one.encode_name for one in msgspec.structs.fields(family.Fields) if not one.required]


def names_of(field: str) -> tuple[str, ...]:
    """All names of one thing."""
    return next((names for names in SYNONYMS if field in names), (field,))


def without(config: dict[str, Any], field: str) -> dict[str, Any]:
    """A config.json that lacks a field, by whatever name."""
    gone = ROPE if field in ROPE else {field, *names_of(field)}
    return {key: value for key, value in config.items() if key not in gone}


def main() -> None:
    """Writes the table."""
    import transformers

    found = {"transformers": transformers.__version__} | table()
    lines = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
