"""Stand-ins for the models that the examples name, in a hub cache of the runner's own.

No hub is asked. Each name that an example gives is found in the cache as one of a few kinds of
model: SmolLM2's own weights, with a random head where the example's model has one that is not for
text, or two random layers where the example wants a longer context than memory has room for.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

from benchmarks.compare.checkpoint import hf_config, hf_directory
from benchmarks.report import ROOT
from jax_engine.models.checkpoints.default_model import default_model_path
from jax_engine.models.checkpoints.gguf.gguf_file import GgufFile
from jax_engine.models.checkpoints.gguf.gguf_source import config_from_gguf
from jax_engine.models.checkpoints.weight_layouts import INDEX, WHOLE
from jax_engine.models.families.jina_ranking import DOCUMENT, QUERY
from jax_engine.quantize.options import Options
from jax_engine.quantize.run import quantize
from jax_engine.tokenization.gguf_tokenizer import backend_from_gguf

TEXT = "SmolLM2-135M-Instruct"
CUT = "SmolLM2 with embeddings that may be cut"
TINY = "two random layers"
QWEN = "two random layers of Qwen 3"
RANKING = "two random layers of Qwen 3 with a random projector"
AWQ, GPTQ = "SmolLM2 in AWQ's codes", "SmolLM2 in GPTQ's codes"
SCORE = "SmolLM2 with a random head of 1 score"
CLASSES = "SmolLM2 with a random head of 2 classes"
TOKEN_SCORE = "SmolLM2 with a random score of each token"
LABELS = "SmolLM2 with random labels of tokens"
KINDS = {
    TEXT: {},
    CUT: {"is_matryoshka": True},
    TINY: {"num_hidden_layers": 2, "max_position_embeddings": 32768, "random": True},
    QWEN: {"num_hidden_layers": 2, "random": True, "architecture": "Qwen3ForCausalLM"},
    RANKING: {
        "num_hidden_layers": 2,
        "random": True,
        "architecture": "JinaForRanking",
        "tokens": (DOCUMENT, QUERY),
    },
    SCORE: {"labels": 1, "head": "SequenceClassification"},
    CLASSES: {"labels": 2, "head": "SequenceClassification"},
    TOKEN_SCORE: {"labels": 1, "head": "TokenClassification"},
    LABELS: {"labels": 9, "head": "TokenClassification"},
    AWQ: {"codes": "awq"},
    GPTQ: {"codes": "gptq"},
}
ADAPTER = "an adapter of SmolLM2"

STAND_INS = {
    "facebook/opt-125m": TEXT,
    "lmsys/longchat-13b-16k": TEXT,
    "meta-llama/Llama-2-13b-chat-hf": TEXT,
    "meta-llama/Llama-3.1-8B-Instruct": TEXT,
    "meta-llama/Llama-3.2-1B-Instruct": TEXT,
    "Qwen/Qwen2.5-3B-Instruct": TEXT,
    "Qwen/Qwen3-Reranker-0.6B": QWEN,
    "Qwen/Qwen3-ForcedAligner-0.6B": TEXT,
    "ibm-research/PowerMoE-3b": TEXT,
    "mistralai/Mistral-7B-Instruct-v0.3": TEXT,
    "intfloat/e5-small": TEXT,
    "jinaai/jina-embeddings-v3": CUT,
    "jinaai/jina-reranker-v3": RANKING,
    "BAAI/bge-m3": TEXT,
    "Qwen/Qwen3-0.6B": TINY,
    "jason9693/Qwen2.5-1.5B-apeach": CLASSES,
    "BAAI/bge-reranker-v2-m3": SCORE,
    "nvidia/llama-nemotron-rerank-1b-v2": SCORE,
    "Skywork/Skywork-Reward-V2-Qwen3-0.6B": SCORE,
    "internlm/internlm2-1_8b-reward": TOKEN_SCORE,
    "boltuix/NeuroBERT-NER": LABELS,
    "meta-llama/Llama-3.2-3B-Instruct": TEXT,
    "jeeejeee/llama32-3b-text2sql-spider": ADAPTER,
    "AmirMohseni/skywork-qwen3-0.6b-reward-lora": ADAPTER,
    "huggyllama/llama-7b": TEXT,
    "timdettmers/qlora-flan-7b": ADAPTER,
    "TheBloke/TinyLlama-1.1B-Chat-v0.3-AWQ": AWQ,
    "TheBloke/TinyLlama-1.1B-Chat-v0.3-GPTQ": GPTQ,
    "jashing/tinyllama-colorist-lora": ADAPTER,
}
_DECLARED = ("is_matryoshka",)
_REVISION = "0" * 40


def hub_cache(folder: Path) -> Path:
    """A folder for `HF_HOME` in which every name of `STAND_INS` is found."""
    directories = {kind: _directory(folder / "kinds", kind) for kind in KINDS}
    directories[ADAPTER] = ROOT / "examples" / "adapters" / "pirate"
    for name, kind in STAND_INS.items():
        repository = folder / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = repository / "snapshots" / _REVISION
        if not snapshot.is_symlink():
            snapshot.parent.mkdir(parents=True, exist_ok=True)
            (repository / "refs").mkdir(exist_ok=True)
            (repository / "refs" / "main").write_text(_REVISION)
            snapshot.symlink_to(directories[kind].absolute(), target_is_directory=True)
    return folder


def local_directory(folder: Path, kind: str = TEXT) -> Path:
    """One of `KINDS` as a directory, for what wants a path."""
    return _directory(folder / "kinds", kind)


def _directory(folder: Path, kind: str) -> Path:
    """Writes one kind of model in Hugging Face layout, unless it is there."""
    directory = folder / kind.replace(" ", "-")
    marker = directory / "config.json"
    if marker.exists():
        return directory
    options: dict[str, Any] = KINDS[kind]
    if "codes" in options:
        text = _directory(folder, TEXT)
        return quantize(str(text), str(directory), Options(format=options["codes"]))
    directory.mkdir(parents=True, exist_ok=True)
    config = hf_config(config_from_gguf(GgufFile(default_model_path())))
    config |= {key: value for key, value in options.items() if key in config or key in _DECLARED}
    weights, tokens = directory / WHOLE, options.get("tokens", ())
    config["vocab_size"] += len(tokens)
    if "random" in options:
        config |= {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16}
        config |= {"num_attention_heads": 4, "num_key_value_heads": 1}
        config["architectures"] = [options.get("architecture", "LlamaForCausalLM")]
        save_file(_random_weights(config), weights)
    else:
        weights.symlink_to(hf_directory(folder) / WHOLE)
    if "head" in options:
        config |= _head(weights, config["hidden_size"], options["labels"], options["head"])
    _write_tokenizer(directory, tokens)
    marker.write_text(json.dumps(config, indent=1))  # last: it marks the end
    return directory


def _head(weights: Path, width: int, labels: int, head: str) -> dict[str, Any]:
    """Writes a head in a file beside the weights, and the index of both."""
    weight = np.random.default_rng(0).standard_normal((labels, width), np.float32) / width**0.5
    place = weights.with_name("score.safetensors")
    save_file({"score.weight": weight}, place)
    shards = {}
    for shard in (weights, place):
        with safe_open(shard, "numpy") as tensors:
            shards |= dict.fromkeys(tensors.keys(), shard.name)
    weights.with_name(INDEX).write_text(json.dumps({"weight_map": shards}))
    names = {str(i): f"LABEL_{i}" for i in range(labels)}
    return {"architectures": [f"LlamaFor{head}"], "num_labels": labels, "id2label": names}


def _random_weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    width, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    shapes = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        for name, shape in {
            "self_attn.q_proj": (heads, width),
            "self_attn.k_proj": (kv, width),
            "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, heads),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
        if config["architectures"] != ["LlamaForCausalLM"]:  # it is one of Qwen 3's
            for name in ("q_norm", "k_norm"):
                norm = f"model.layers.{layer}.self_attn.{name}.weight"
                shapes[norm] = (config["head_dim"],)
    shapes["model.norm.weight"] = (width,)
    if config["architectures"] == ["JinaForRanking"]:
        shapes["projector.0.weight"] = (width // 2, width)
        shapes["projector.2.weight"] = (512, width // 2)
    draw = np.random.default_rng(0).standard_normal
    return {
        name: draw(shape, np.float32) / 8 + np.float32(len(shape) == 1)
        for name, shape in shapes.items()
    }


def _write_tokenizer(directory: Path, further: Sequence[str]) -> None:
    metadata = GgufFile(default_model_path()).metadata
    backend = backend_from_gguf(metadata)
    backend.add_special_tokens(list(further))
    backend.save(str(directory / "tokenizer.json"))
    tokens = metadata["tokenizer.ggml.tokens"]
    named = {
        f"{name}_token": tokens[metadata[f"tokenizer.ggml.{field}_token_id"]]
        for name, field in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if f"tokenizer.ggml.{field}_token_id" in metadata
    }
    settings = named | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings["chat_template"] = metadata["tokenizer.chat_template"]
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
