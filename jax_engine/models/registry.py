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
from jax_engine.models.model_config import HeadConfig, HeadLayers, HeadTask, ModelConfig
from jax_engine.models.pooling_heads import head_config, split_architecture
from jax_engine.models.token_head import token_rows
from jax_engine.weights.transforms import Declaration, Tensor, transform_of

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


class Encoder(Family, Protocol):
    """The declarations of an encoder's file.

    Attributes:
        head: what the head for a task consists of.
    """

    def head(self, fields: Any, task: HeadTask) -> HeadLayers: ...


class Reranker(Family, Protocol):
    """The declarations of a model whose head makes vectors of a query and its documents.

    Attributes:
        head: what it consists of, and which tokens' states it reads.
    """

    def head(self, fields: Any) -> HeadConfig: ...


# What `architectures` in `config.json` may say, and the module of families/ that declares it.
FAMILIES: dict[str, str] = {
    "ApertusForCausalLM": "apertus",
    "ArceeForCausalLM": "arcee",
    "BaichuanForCausalLM": "baichuan",
    "BaiChuanForCausalLM": "baichuan",
    "BailingMoeForCausalLM": "bailing_moe",
    "BailingMoeV2ForCausalLM": "bailing_moe_v2",
    "BloomForCausalLM": "bloom",
    "CohereForCausalLM": "cohere",
    "Cohere2ForCausalLM": "cohere2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "Dots1ForCausalLM": "dots1",
    "Ernie4_5ForCausalLM": "ernie4_5",
    "Ernie4_5_MoeForCausalLM": "ernie4_5_moe",
    "Exaone4ForCausalLM": "exaone4",
    "ExaoneMoeForCausalLM": "exaone_moe",
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
    "HeliumForCausalLM": "helium",
    "HunYuanDenseV1ForCausalLM": "hunyuan_v1_dense",
    "HunYuanMoEV1ForCausalLM": "hunyuan_v1_moe",
    "InternLMForCausalLM": "internlm",
    "LlamaForCausalLM": "llama",
    "LLaMAForCausalLM": "llama",
    "AquilaForCausalLM": "llama",
    "AquilaModel": "llama",
    "Llama4ForCausalLM": "llama4",
    "MiniCPMForCausalLM": "minicpm",
    "MiniCPM3ForCausalLM": "minicpm3",
    "MiniMaxM2ForCausalLM": "minimax_m2",
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
    "SeedOssForCausalLM": "seed_oss",
    "SmolLM3ForCausalLM": "smollm3",
    "StableLmForCausalLM": "stablelm",
    "StableLMEpochForCausalLM": "stablelm",
    "Starcoder2ForCausalLM": "starcoder2",
    "VaultGemmaForCausalLM": "vaultgemma",
}


# What a known model lacks here, for its error.
WANTING = {
    "BailingMoeV2_5ForCausalLM": "layers with linear attention, whose state is no KV cache",
    "Gemma3nForCausalLM": "four residual streams beside each other (AltUp), embeddings for each "
    "layer, and layers that read the keys and values of another layer",
    "Gemma3nForConditionalGeneration": "four residual streams beside each other (AltUp), "
    "embeddings for each layer, layers that read the keys and values of another layer, and inputs "
    "other than text",
    "MiniMaxM1ForCausalLM": "layers with linear attention, whose state is no KV cache",
}
# Those of encoders. Their embeddings and their heads for scores are read, their guesses are not.
ENCODERS: dict[str, str] = {
    "BertModel": "bert",
    "BertForMaskedLM": "bert",
    "BertForPreTraining": "bert",
    "RobertaModel": "roberta",
    "RobertaForMaskedLM": "roberta",
    "XLMRobertaModel": "roberta",
    "XLMRobertaForMaskedLM": "roberta",
    "ModernBertModel": "modernbert",
    "ModernBertForMaskedLM": "modernbert",
    "NomicBertModel": "nomic_bert",
    "NomicBertForMaskedLM": "nomic_bert",
}
# Those that read a query and its documents as one prompt.
RERANKERS: dict[str, str] = {"JinaForRanking": "jina_ranking"}
KNOWN = FAMILIES | ENCODERS | RERANKERS


def family_of(architecture: str) -> Family:
    """Imports the family of an architecture. Raises ConfigError that lists the known ones."""
    module = KNOWN.get(architecture)
    if architecture in WANTING:
        raise ConfigError(
            f"model architecture {architecture!r} is not supported: it has {WANTING[architecture]}."
        )
    if module is None:
        near = difflib.get_close_matches(architecture, KNOWN, n=1, cutoff=0.8)
        hint = f" The nearest name is {near[0]}." if near else ""
        raise ConfigError(
            f"model architecture {architecture!r} is not supported; known: "
            f"{', '.join(sorted(KNOWN))}.{hint} "
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
    found = [split_architecture(name, KNOWN) for name in names]
    name, task = next((one for one in found if one[0] in KNOWN), (names[0], None))
    family = family_of(name)
    check_fields(raw, family.Fields)
    fields = checked(with_known_names(raw, family.Fields), family.Fields, FILE)
    spec = family.specification(fields)
    check_rotation(raw, spec)
    head = None if task is None else head_config(task, raw)
    if name in RERANKERS:
        head = cast(Reranker, family).head(fields)
    elif head is not None and spec.is_encoder:
        head = replace(head, layers=cast(Encoder, family).head(fields, head.task))
    elif head is not None:
        head = _of_tokens(head, raw, family.weights(spec)["embed" if spec.tied else "lm_head"])
    if head is not None and not spec.is_encoder:
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


def _of_tokens(head: HeadConfig, raw: Mapping[str, Any], declared: Declaration) -> HeadConfig:
    """The head, with rows of the output matrix in its place if the fields say so."""
    made = transform_of(declared)
    matrix = made.name.replace("{kind}", "weight") if isinstance(made, Tensor) else None
    rows = token_rows(raw, matrix)
    if rows is None:
        return head
    names = [str(token) for token in rows.tokens]
    return replace(head, rows=rows, labels=tuple(names[-1:] if rows.is_difference else names))


def _matryoshka(raw: Mapping[str, Any]) -> tuple[int, ...] | None:
    fields = checked(raw, MatryoshkaFields, FILE)
    if fields.matryoshka_dimensions:
        return tuple(fields.matryoshka_dimensions)
    return () if fields.is_matryoshka else None
