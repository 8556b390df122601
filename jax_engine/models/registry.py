"""Finds the family for an architecture name of `config.json`."""

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, cast

from jax_engine.errors import ConfigError
from jax_engine.model_spec import ModelSpec
from jax_engine.models.checkpoints.file_schema import checked
from jax_engine.models.families.hf_config import FILE, token_ids
from jax_engine.models.hf_fields import check_fields, check_rotation, with_known_names
from jax_engine.models.hf_schemas import (
    ArchitectureFields,
    LayerFields,
    MatryoshkaFields,
    TokenFields,
)
from jax_engine.models.model_config import ModelConfig
from jax_engine.models.pooling_heads import head_config, split_architecture
from jax_engine.weights.transforms import Declaration

FOLDER = "jax_engine.models.families"


class Family(Protocol):
    """The declarations of a file under families/ (docs/tutorial/add-a-model.md).

    Attributes:
        Fields: the schema of `config.json`.
        specification: makes the decoder's layers of these fields. Raises ConfigError for a variant
            that the engine does not compute.
        weights: how tensors of the checkpoint make each module of the decoder.
    """

    @property
    def Fields(self) -> type[Any]: ...

    def specification(self, fields: Any) -> ModelSpec: ...

    def weights(self, spec: ModelSpec) -> Mapping[str, Declaration]: ...


# What `architectures` in `config.json` may say, and the module of families/ that declares it.
FAMILIES: dict[str, str] = {
    "BaichuanForCausalLM": "baichuan",
    "BaiChuanForCausalLM": "baichuan",
    "BloomForCausalLM": "bloom",
    "CohereForCausalLM": "cohere",
    "Cohere2ForCausalLM": "cohere2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Exaone4ForCausalLM": "exaone4",
    "FalconForCausalLM": "falcon",
    "RWForCausalLM": "falcon",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3",
    "Gemma3TextModel": "gemma3",
    "GlmForCausalLM": "glm",
    "Glm4ForCausalLM": "glm4",
    "Glm4MoeForCausalLM": "glm4_moe",
    "Glm4MoeLiteForCausalLM": "glm4_moe_lite",
    "GPT2LMHeadModel": "gpt2",
    "GPTBigCodeForCausalLM": "gpt_bigcode",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GptOssForCausalLM": "gpt_oss",
    "GPTJForCausalLM": "gptj",
    "GraniteForCausalLM": "granite",
    "GraniteMoeForCausalLM": "granitemoe",
    "GraniteMoeSharedForCausalLM": "granitemoe",
    "InternLMForCausalLM": "internlm",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "AquilaForCausalLM": "llama",
    "AquilaModel": "llama",
    "MiniCPMForCausalLM": "minicpm",
    "MiniCPM3ForCausalLM": "minicpm3",
    "Ministral3ForCausalLM": "ministral3",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "MPTForCausalLM": "mpt",
    "MptForCausalLM": "mpt",
    "NemotronForCausalLM": "nemotron",
    "OlmoForCausalLM": "olmo",
    "Olmo2ForCausalLM": "olmo2",
    "Olmo3ForCausalLM": "olmo3",
    "OlmoeForCausalLM": "olmoe",
    "OPTForCausalLM": "opt",
    "PhiForCausalLM": "phi",
    "Phi3ForCausalLM": "phi3",
    "QWenLMHeadModel": "qwen",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "SmolLM3ForCausalLM": "smollm3",
    "StableLmForCausalLM": "stablelm",
    "StableLMEpochForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
}


def family_of(architecture: str) -> Family:
    """Imports the family of an architecture. Raises ConfigError that lists the known ones."""
    module = FAMILIES.get(architecture)
    if module is None:
        near = difflib.get_close_matches(architecture, FAMILIES, n=1, cutoff=0.8)
        hint = f" The nearest name is {near[0]}." if near else ""
        raise ConfigError(
            f"model architecture {architecture!r} is not supported; known: "
            f"{', '.join(sorted(FAMILIES))}.{hint} "
            "Adding one takes a file in jax_engine/models/families/."
        )
    return cast(Family, importlib.import_module(f"{FOLDER}.{module}"))


def config_from_hf(raw: Mapping[str, Any]) -> ModelConfig:
    """ModelConfig from a `config.json` dictionary, by its `architectures`. Raises ConfigError.

    A model with a head for scores (`models.pooling_heads`) uses its family's decoder.
    """
    if not raw.get("architectures"):
        raise ConfigError("config.json: `architectures` is missing or empty; which model is it?")
    names = checked(raw, ArchitectureFields, FILE).architectures
    found = [split_architecture(name) for name in names]
    name, task = next((one for one in found if one[0] in FAMILIES), (names[0], None))
    family = family_of(name)
    check_fields(raw, family.Fields)
    spec = family.specification(checked(with_known_names(raw, family.Fields), family.Fields, FILE))
    check_rotation(raw, spec)
    head = None if task is None else head_config(task, raw)
    if head is not None:
        # Such a checkpoint has no lm_head. The embedding stands in for it, and no logits are asked.
        spec = replace(spec, tied=True, head_bias=False)
    tokens = checked(raw, TokenFields, FILE)
    return ModelConfig(
        architecture=name,
        spec=spec,
        weights=family.weights(spec),
        eos_token_ids=token_ids(tokens.eos_token_id),
        bos_token_id=tokens.bos_token_id,
        extra_layers=checked(raw, LayerFields, FILE).num_nextn_predict_layers or 0,
        head=head,
        matryoshka_dimensions=_matryoshka(raw),
    )


def _matryoshka(raw: Mapping[str, Any]) -> tuple[int, ...] | None:
    fields = checked(raw, MatryoshkaFields, FILE)
    if fields.matryoshka_dimensions:
        return tuple(fields.matryoshka_dimensions)
    return () if fields.is_matryoshka else None
