"""Takes from config.json what it may lack: what is at the default of transformers' class.

    python -m tests.golden.families.sparing _awkward _recent_awkward

does so with every case of cases_awkward.json and cases_recent_awkward.json. It needs no PyTorch.
"""

import json
import sys
from typing import Any

import msgspec

from jax_engine.models.registry import family_of
from tests.golden.families.checkpoints import HERE


def spared(config: dict[str, Any]) -> dict[str, Any]:
    """The fields that are needed, and those with another value than the default."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    fields = msgspec.structs.fields(family_of(config["architectures"][0]).Fields)
    needed = {one.encode_name for one in fields if one.required} | {"architectures", "model_type"}
    defaults = CONFIG_MAPPING[config["model_type"]]().to_dict()
    return {k: v for k, v in config.items() if k in needed or defaults.get(k, ...) != v}


def main() -> None:
    """Rewrites the files with these endings."""
    for ending in sys.argv[1:]:
        file = HERE / f"cases{ending}.json"
        cases = json.loads(file.read_text("utf-8"))
        lines = []
        for name, case in cases.items():
            case["config"] = spared(case["config"])
            lines.append(f"{json.dumps(name)}: {json.dumps(case)}")
        file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
