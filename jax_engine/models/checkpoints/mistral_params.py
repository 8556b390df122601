"""Mistral's own configuration, params.json, as the fields of a config.json.

`read_fields` gives a directory's fields in Hugging Face's words, whichever of the two files it is
read from. All else knows only those. What params.json says of a part that is not computed here
(images, Mamba, latent attention, shared experts) is refused by name.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from jax_engine.config.engine_config import ConfigFormat
from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.file_schema import Positive, Size, checked, read_json, short
from jax_engine.models.checkpoints.weight_layouts import CONFIG, PARAMS, files_of, is_mistral
from jax_engine.models.families.hf_config import FULL, SLIDING
from jax_engine.models.hf_schemas import Epsilon, Factor, Theta

_LONGEST = 128_000  # positions of a model that does not say how many: those of Mistral's own code
# The base of RoPE where params.json has none: of the first model, which has a window; of others.
_THETA_OF_WINDOW, _THETA = 10_000.0, 1_000_000.0
_BEGIN, _END = 1, 2  # <s> and </s> in each of Mistral's vocabularies


class MoeFields(msgspec.Struct, frozen=True):
    """The experts of each layer."""

    num_experts: Size
    num_experts_per_tok: Size
    num_shared_experts: int | None = 0


class YarnFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How RoPE is stretched. `alpha` and `beta` are YaRN's slow and fast turns."""

    factor: Factor
    original_max_position_embeddings: Size
    alpha: Positive | None = None
    beta: Positive | None = None
    apply_scale: bool = True


class GrowthFields(msgspec.Struct, frozen=True):
    """How queries grow with their position."""

    original_max_position_embeddings: Size
    beta: Annotated[float, Meta(ge=0, le=1e6)]


class ParamsFields(msgspec.Struct, frozen=True):
    """params.json."""

    dim: Size
    n_layers: Size
    n_heads: Size
    hidden_dim: Size
    vocab_size: Size
    n_kv_heads: Size | None = None
    head_dim: Size | None = None
    norm_eps: Epsilon = 1e-5
    rope_theta: Theta | None = None
    sliding_window: Size | list[Size | None] | None = None
    activation: str = "silu"
    tied_embeddings: bool | None = False
    max_position_embeddings: Size | None = None
    max_seq_len: Size | None = None
    moe: MoeFields | None = None
    yarn: YarnFields | None = None
    llama_4_scaling: GrowthFields | None = None
    quantization: dict[str, Any] | None = None
    model_type: Literal["transformer"] = "transformer"


# Fields that speak of what is not computed here.
_REFUSED = {
    "vision_encoder": "only text models are read",
    "multimodal": "only text models are read",
    "qk_nope_head_dim": "latent attention is read in Hugging Face layout only",
}


def read_fields(directory: Path, config_format: ConfigFormat = "auto") -> dict[str, Any]:
    """The fields of a directory's config.json, or of its params.json in the same words.

    Args:
        config_format: "auto" takes params.json where Mistral's weights are beside it, as vLLM does,
            or where there is no config.json.

    Raises:
        WeightsError: the file is not there or unreadable.
        ConfigError: a field of params.json has a wrong value, or one that is not supported.
    """
    is_own = config_format == "mistral"
    if config_format == "auto":
        is_own = is_mistral(files_of(directory, None))
    if not is_own:
        return read_json(directory / CONFIG)
    raw = read_json(directory / PARAMS)
    if raw.get("max_position_embeddings") is None and (directory / CONFIG).is_file():
        longest = read_json(directory / CONFIG).get("max_position_embeddings")
        raw = raw if longest is None else raw | {"max_position_embeddings": longest}
    return fields_of_params(raw)


def fields_of_params(raw: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config.json that say what these of a params.json do. Raises ConfigError."""
    for name, reason in _REFUSED.items():
        if raw.get(name):
            raise ConfigError(f"{PARAMS}: {name} {short(raw[name])} is not supported: {reason}.")
    params = checked(raw, ParamsFields, PARAMS)
    longest = params.max_position_embeddings or _LONGEST
    fields = {
        "architectures": [_architecture(params)],
        "vocab_size": params.vocab_size,
        "hidden_size": params.dim,
        "intermediate_size": params.hidden_dim,
        "num_hidden_layers": params.n_layers,
        "num_attention_heads": params.n_heads,
        "num_key_value_heads": params.n_kv_heads or params.n_heads,
        "head_dim": params.head_dim or params.dim // params.n_heads,
        "rms_norm_eps": params.norm_eps,
        "hidden_act": params.activation,
        "tie_word_embeddings": bool(params.tied_embeddings),
        "max_position_embeddings": min(longest, params.max_seq_len or longest),
        "bos_token_id": _BEGIN,
        "eos_token_id": _END,
    }
    return fields | _windows(params) | _rope(params) | _experts(params) | _codes(params)


def _architecture(params: ParamsFields) -> str:
    if params.moe is not None:
        return "MixtralForCausalLM"
    return "MistralForCausalLM" if params.llama_4_scaling is None else "Ministral3ForCausalLM"


def _windows(params: ParamsFields) -> dict[str, Any]:
    """`sliding_window` is one for all layers, or a pattern that repeats. Raises ConfigError."""
    found = params.sliding_window
    if not isinstance(found, list):
        return {"sliding_window": found}
    sizes = {one for one in found if one is not None}
    if not found or params.n_layers % len(found) or len(sizes) > 1:
        raise ConfigError(
            f"{PARAMS}: sliding_window {short(found)} is not supported; known: a number or null "
            f"for all of the {params.n_layers} layers, or a list of both with one number, as long "
            "as a part of the layers that repeats."
        )
    types = [FULL if one is None else SLIDING for one in found]
    layers = types * (params.n_layers // len(found))
    return {"sliding_window": next(iter(sizes), None), "layer_types": layers}


def _rope(params: ParamsFields) -> dict[str, Any]:
    """The rotary embedding, with YaRN and with the growth of queries. Raises ConfigError."""
    windowed = isinstance(params.sliding_window, int)
    theta = params.rope_theta or (_THETA_OF_WINDOW if windowed else _THETA)
    yarn, growth = params.yarn, params.llama_4_scaling
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta}
    if yarn is not None:
        turns = {"beta_fast": yarn.beta, "beta_slow": yarn.alpha}
        rope |= {name: one for name, one in turns.items() if one is not None}
        rope |= {"rope_type": "yarn", "factor": yarn.factor}
        rope["original_max_position_embeddings"] = yarn.original_max_position_embeddings
        if not yarn.apply_scale:
            rope["attention_factor"] = 1.0
    if growth is not None:
        start = rope.setdefault(
            "original_max_position_embeddings", growth.original_max_position_embeddings
        )
        if start != growth.original_max_position_embeddings:
            raise ConfigError(
                f"{PARAMS}: llama_4_scaling.original_max_position_embeddings "
                f"{growth.original_max_position_embeddings} is not supported; known: yarn's, "
                f"{start}."
            )
        rope["llama_4_scaling_beta"] = growth.beta
    return {"rope_parameters": rope}


def _experts(params: ParamsFields) -> dict[str, Any]:
    if params.moe is None:
        return {}
    if params.moe.num_shared_experts:
        raise ConfigError(
            f"{PARAMS}: moe.num_shared_experts {params.moe.num_shared_experts} is not supported; "
            "known: 0."
        )
    chosen = params.moe.num_experts_per_tok
    return {"num_local_experts": params.moe.num_experts, "num_experts_per_tok": chosen}


def _codes(params: ParamsFields) -> dict[str, Any]:
    """How weights are quantised. Raises ConfigError for a method that is not known."""
    found = params.quantization
    if not found:
        return {}
    if found.get("qformat_weight") == "fp8_e4m3":
        scheme = found.get("qscheme_act")
        if scheme not in (None, "TENSOR", "NO_SCALES"):
            raise ConfigError(
                f"{PARAMS}: quantization.qscheme_act {short(scheme)} is not supported; known: "
                "'TENSOR', 'NO_SCALES'."
            )
        kind = "dynamic" if scheme == "NO_SCALES" else "static"
        return {"quantization_config": {"quant_method": "fp8", "activation_scheme": kind}}
    method = str(found.get("quant_method")).lower().replace("_", "-")
    if method != "compressed-tensors":
        raise ConfigError(
            f"{PARAMS}: quantization {short(found)} is not supported; known: qformat_weight "
            "'fp8_e4m3', quant_method 'compressed-tensors'."
        )
    return {"quantization_config": found | {"quant_method": method}}
