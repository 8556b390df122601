"""Random encoders of a few layers, in the layouts of their families, and in the oracle's words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from reference.encoder import Encoder, EncoderConfig

VOCABULARY, WIDTH = 61, 36
CLS, SEP = 0, 1  # tokens of `save_pair_tokenizer`
BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 44,
    "max_position_embeddings": 300,
}
NAMES = {"bert": "BertModel", "modernbert": "ModernBertModel", "nomic": "NomicBertModel"}
Tensors = dict[str, np.ndarray]


def tiny_encoder(
    folder: Path, kind: str = "bert", seed: int = 0, **changes: Any
) -> tuple[Path, Encoder]:
    """Writes a checkpoint; returns its folder, and the oracle with the same weights.

    Args:
        kind: a name of NAMES.
        changes: fields of config.json.
    """
    config = BERT | {"architectures": [NAMES[kind]]} | changes
    own = {"bert": _bert, "modernbert": _modernbert, "nomic": _nomic}[kind]
    rng = np.random.default_rng(seed)

    def draw(*shape: int, around: float = 0.0) -> np.ndarray:
        return (around + 0.3 * rng.standard_normal(shape)).astype(np.float32)

    settings, tensors, weights = own(config, draw)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder, Encoder(settings, weights)


def with_scores(folder: Path, labels: int, seed: int = 0) -> tuple[Path, Tensors]:
    """Makes a folder's BERT one with a head for scores; returns the head's tensors."""
    file, rng = folder / "config.json", np.random.default_rng(seed)
    config = json.loads(file.read_text())
    config["architectures"], config["num_labels"] = ["BertForSequenceClassification"], labels
    file.write_text(json.dumps(config))
    sizes = {"bert.pooler.dense": (WIDTH, WIDTH), "classifier": (labels, WIDTH)}
    head: Tensors = {}
    for name, shape in sizes.items():
        head[f"{name}.weight"] = rng.standard_normal(shape).astype(np.float32)
        head[f"{name}.bias"] = rng.standard_normal(shape[0]).astype(np.float32)
    tensors = {f"bert.{name}": one for name, one in load_file(folder / "model.safetensors").items()}
    save_file(tensors | head, folder / "model.safetensors")
    return folder, head


def save_pair_tokenizer(folder: Path) -> None:
    """Characters as tokens, with [CLS] in front and [SEP] behind each text, as BERT has them."""
    special = {"[CLS]": CLS, "[SEP]": SEP, "[UNK]": 2}
    vocab = special | {chr(ord("a") + i): 3 + i for i in range(26)}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.add_special_tokens(list(special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(name, special[name]) for name in ("[CLS]", "[SEP]")],
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text("{}")


def _norm(tensors: Tensors, name: str, draw: Any, *, bias: bool = True) -> Tensors:
    """Draws a norm, and returns it as the oracle has it."""
    found = {"weight": draw(WIDTH, around=1.0)} | ({"bias": draw(WIDTH)} if bias else {})
    tensors |= {f"{name}.{kind}": one for kind, one in found.items()}
    return found


def _put(weights: Tensors, name: str, module: Tensors) -> None:
    weights |= {f"{name}.{kind}": one for kind, one in module.items()}


def _linear(draw: Any, rows: int, columns: int, *, bias: bool) -> Tensors:
    return {"weight": draw(rows, columns)} | ({"bias": draw(rows)} if bias else {})


def _bert(config: dict[str, Any], draw: Any) -> tuple[EncoderConfig, Tensors, Tensors]:
    layers, wide = config["num_hidden_layers"], config["intermediate_size"]
    settings = EncoderConfig(
        config["num_attention_heads"],
        (None,) * layers,
        (None,) * layers,
        config.get("hidden_act", "gelu"),
        config.get("layer_norm_eps", 1e-12),
        post_norm=True,
        gated=False,
    )
    tensors: Tensors = {}
    weights: Tensors = {
        "embed.weight": draw(config["vocab_size"], WIDTH),
        "positions.weight": draw(config["max_position_embeddings"], WIDTH),
        "token_types.weight": draw(config.get("type_vocab_size", 2), WIDTH),
    }
    for ours, theirs in (
        ("embed", "word"),
        ("positions", "position"),
        ("token_types", "token_type"),
    ):
        tensors[f"embeddings.{theirs}_embeddings.weight"] = weights[f"{ours}.weight"]
    _put(weights, "embed_norm", _norm(tensors, "embeddings.LayerNorm", draw))
    for i in range(layers):
        here, theirs = f"layers.{i}", f"encoder.layer.{i}"
        parts = {one: _linear(draw, WIDTH, WIDTH, bias=True) for one in ("query", "key", "value")}
        for name, part in parts.items():
            _put(tensors, f"{theirs}.attention.self.{name}", part)
        joined = {k: np.concatenate([p[k] for p in parts.values()]) for k in ("weight", "bias")}
        _put(weights, f"{here}.qkv", joined)
        for name, ours, rows, columns in (
            ("attention.output.dense", "o", WIDTH, WIDTH),
            ("intermediate.dense", "up", wide, WIDTH),
            ("output.dense", "down", WIDTH, wide),
        ):
            part = _linear(draw, rows, columns, bias=True)
            _put(tensors, f"{theirs}.{name}", part)
            _put(weights, f"{here}.{ours}", part)
        norm = _norm(tensors, f"{theirs}.attention.output.LayerNorm", draw)
        _put(weights, f"{here}.attention_norm", norm)
        _put(weights, f"{here}.mlp_norm", _norm(tensors, f"{theirs}.output.LayerNorm", draw))
    return settings, tensors, weights


def _modernbert(config: dict[str, Any], draw: Any) -> tuple[EncoderConfig, Tensors, Tensors]:
    layers, wide = config["num_hidden_layers"], config["intermediate_size"]
    is_local = [i % config.get("global_attn_every_n_layers", 3) != 0 for i in range(layers)]
    near = config.get("local_attention", 128) // 2 + 1
    settings = EncoderConfig(
        config["num_attention_heads"],
        tuple(10000.0 if one else 160000.0 for one in is_local),
        tuple(near if one else None for one in is_local),
        "gelu",
        1e-5,
        post_norm=False,
        gated=True,
    )
    weights: Tensors = {"embed.weight": draw(config["vocab_size"], WIDTH)}
    tensors: Tensors = {"embeddings.tok_embeddings.weight": weights["embed.weight"]}
    _put(weights, "embed_norm", _norm(tensors, "embeddings.norm", draw, bias=False))
    for i in range(layers):
        here = f"layers.{i}"
        for name, ours, rows, columns in (
            ("attn.Wqkv", "qkv", 3 * WIDTH, WIDTH),
            ("attn.Wo", "o", WIDTH, WIDTH),
            ("mlp.Wi", "up", 2 * wide, WIDTH),
            ("mlp.Wo", "down", WIDTH, wide),
        ):
            part = _linear(draw, rows, columns, bias=False)
            _put(tensors, f"{here}.{name}", part)
            _put(weights, f"{here}.{ours}", part)
        if i:
            norm = _norm(tensors, f"{here}.attn_norm", draw, bias=False)
            _put(weights, f"{here}.attention_norm", norm)
        _put(weights, f"{here}.mlp_norm", _norm(tensors, f"{here}.mlp_norm", draw, bias=False))
    _put(weights, "norm", _norm(tensors, "final_norm", draw, bias=False))
    return settings, tensors, weights


def _nomic(config: dict[str, Any], draw: Any) -> tuple[EncoderConfig, Tensors, Tensors]:
    layers, wide = config["num_hidden_layers"], config["intermediate_size"]
    settings = EncoderConfig(
        config["num_attention_heads"],
        (config.get("rotary_emb_base", 1000.0),) * layers,
        (None,) * layers,
        "silu",
        1e-12,
        post_norm=True,
        gated=True,
    )
    weights: Tensors = {
        "embed.weight": draw(config["vocab_size"], WIDTH),
        "token_types.weight": draw(2, WIDTH),
    }
    tensors: Tensors = {
        "embeddings.word_embeddings.weight": weights["embed.weight"],
        "embeddings.token_type_embeddings.weight": weights["token_types.weight"],
    }
    _put(weights, "embed_norm", _norm(tensors, "emb_ln", draw))
    for i in range(layers):
        here, theirs = f"layers.{i}", f"encoder.layers.{i}"
        for name, ours, rows, columns in (
            ("attn.Wqkv", "qkv", 3 * WIDTH, WIDTH),
            ("attn.out_proj", "o", WIDTH, WIDTH),
            ("mlp.fc2", "down", WIDTH, wide),
        ):
            part = _linear(draw, rows, columns, bias=False)
            _put(tensors, f"{theirs}.{name}", part)
            _put(weights, f"{here}.{ours}", part)
        up, gates = draw(wide, WIDTH), draw(wide, WIDTH)
        tensors |= {f"{theirs}.mlp.fc11.weight": up, f"{theirs}.mlp.fc12.weight": gates}
        weights[f"{here}.up.weight"] = np.concatenate([gates, up])
        _put(weights, f"{here}.attention_norm", _norm(tensors, f"{theirs}.norm1", draw))
        _put(weights, f"{here}.mlp_norm", _norm(tensors, f"{theirs}.norm2", draw))
    return settings, tensors, weights
