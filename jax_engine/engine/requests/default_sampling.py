"""Sampling parameters of requests without any: what the model's makers suggest, as in vLLM."""

import logging
from pathlib import Path
from typing import Any

from jax_engine.config.engine_config import EngineConfig
from jax_engine.errors import InvalidRequestError, WeightsError
from jax_engine.models.checkpoints.file_schema import checked, read_json
from jax_engine.models.families.hf_config import token_ids
from jax_engine.models.hf_schemas import GenerationFields
from jax_engine.sampling_params import SamplingParams, sampler_numbers

logger = logging.getLogger("jax_engine")

# Names of generation_config.json, and those of `SamplingParams`
_NAMES = {name: name for name in sampler_numbers(SamplingParams)} | {"max_new_tokens": "max_tokens"}


def default_sampling(config: EngineConfig, source: Path) -> dict[str, Any]:
    """Fields of `SamplingParams`, from generation_config.json and what is to override it.

    Args:
        source: The model's directory, or its GGUF file, which has no such suggestions.

    Raises:
        WeightsError: The file is missing from a directory that was named, unreadable, or has a
            value that is out of range.
    """
    raw = dict(_from_file(config.generation_config, source))
    raw |= config.override_generation_config or {}
    found = {ours: raw[theirs] for theirs, ours in _NAMES.items() if raw.get(theirs) is not None}
    try:
        SamplingParams.from_optional(**found)
    except InvalidRequestError as error:
        raise WeightsError(f"generation_config ({config.generation_config}): {error}") from error
    if found and config.generation_config != "vllm":
        logger.info(
            "default sampling parameters of the model: %s (generation_config='vllm' for none)",
            found,
        )
    return found


def suggested_ends(config: EngineConfig) -> tuple[int, ...]:
    """End-of-sequence tokens of the folder that `generation_config` names, else none.

    Those of the file beside the model are its own, whatever the setting is.
    """
    if config.generation_config in ("auto", "vllm"):
        return ()
    file = Path(config.generation_config).expanduser() / "generation_config.json"
    raw = _from_file(config.generation_config, file.parent)
    return token_ids(checked(raw, GenerationFields, str(file)).eos_token_id)


def _from_file(setting: str, source: Path) -> dict[str, Any]:
    if setting == "vllm":
        return {}
    folder = source if setting == "auto" else Path(setting).expanduser()
    file = folder / "generation_config.json"
    if setting == "auto" and not file.exists():
        return {}
    return read_json(file)
