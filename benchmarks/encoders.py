"""Texts a second of an encoder's embeddings, beside sentence-transformers.

The model has the shape of all-MiniLM-L6-v2 and random weights, which cost as much as trained ones.
Both sides get the same texts and the same files, tokenise by themselves, and pool and normalise as
the files say. The texts of a pass are new, their lengths are not. The sides take turns, paused
while the other runs, and their vectors are compared.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from benchmarks.compare.benchmark import Running
from benchmarks.compare.environments import OURS, TORCH, Peer
from benchmarks.compare.passes import one_pass
from benchmarks.compare.workloads import Job
from benchmarks.registry import Benchmark, Figures, flag, names_of

MINI_LM: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}
TINY = MINI_LM | {"vocab_size": 500, "hidden_size": 48, "num_hidden_layers": 2}
LONGEST = 256  # tokens of a text, as in all-MiniLM-L6-v2
PAD, UNK, CLS, SEP, FIRST_WORD = 0, 1, 2, 3, 4
OTHER = "sentence-transformers"
PEERS: dict[str, Peer] = {
    OURS: Peer("jax-engine", "ours_embed.py"),
    OTHER: Peer(
        "sentence-transformers",
        "sentence_transformers_encode.py",
        "sentence-transformers",
        (TORCH, "install transformers==5.24 sentence-transformers==6.2.0"),
    ),
}
# By name: the number of texts, the fewest words of one, and the most. Lengths are spread evenly on
# a logarithmic scale.
WORKLOADS = {"short": (512, 4, 20), "mixed": (192, 4, 250), "long": (64, 200, 250)}


def jobs(workload: str, vocab_size: int, seed: int, divide: int) -> list[Job]:
    """The texts of a pass, a token for each word."""
    count, least, most = WORKLOADS[workload]
    spread = np.random.default_rng(0).uniform(np.log(least), np.log(most + 1), count // divide)
    rng = np.random.default_rng(seed)
    return [
        Job(rng.integers(FIRST_WORD, vocab_size, int(length)).tolist(), 0)
        for length in np.exp(spread)
    ]


def checkpoint(folder: Path, config: dict[str, Any]) -> Path:
    """The model as sentence-transformers saves one: weights, tokenizer, mean, length 1."""
    folder.mkdir(parents=True)
    save_file(_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
    module = "sentence_transformers.models."
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    files: dict[str, Any] = {
        "config.json": config,
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": module + kind}
            for i, (path, kind) in enumerate(kinds)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": config["hidden_size"],
            "pooling_mode_mean_tokens": True,
        },
        "sentence_bert_config.json": {"max_seq_length": LONGEST, "do_lower_case": False},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "pad_token": "[PAD]",
            "unk_token": "[UNK]",
            "cls_token": "[CLS]",
            "sep_token": "[SEP]",
            "model_max_length": LONGEST,
        },
    }
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content), "utf-8")
    (folder / "2_Normalize").mkdir()
    _tokenizer(config["vocab_size"]).save(str(folder / "tokenizer.json"))
    return folder


def _tokenizer(vocab_size: int) -> Tokenizer:
    """A token for each word `w5`, and BERT's around each text."""
    special = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS, "[SEP]": SEP}
    words = {f"w{i}": i for i in range(FIRST_WORD, vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(special | words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(list(special))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    return tokenizer


def _weights(config: dict[str, Any]) -> dict[str, np.ndarray]:
    """BERT's tensors, of random numbers; norms and biases as a new model has them."""
    width, wide = config["hidden_size"], config["intermediate_size"]
    rows = {
        "word": config["vocab_size"],
        "position": config["max_position_embeddings"],
        "token_type": config["type_vocab_size"],
    }
    shapes = {f"embeddings.{name}_embeddings": (count, width) for name, count in rows.items()}
    norms = ["embeddings.LayerNorm"]
    for i in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{i}"
        for name in ("query", "key", "value"):
            shapes[f"{layer}.attention.self.{name}"] = (width, width)
        shapes[f"{layer}.attention.output.dense"] = (width, width)
        shapes[f"{layer}.intermediate.dense"] = (wide, width)
        shapes[f"{layer}.output.dense"] = (width, wide)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    rng, found = np.random.default_rng(0), dict[str, np.ndarray]()
    for name, shape in shapes.items():
        found[f"{name}.weight"] = 0.05 * rng.standard_normal(shape, np.float32)
        if not name.startswith("embeddings"):
            found[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    for name in norms:
        found[f"{name}.weight"] = np.ones(width, np.float32)
        found[f"{name}.bias"] = np.zeros(width, np.float32)
    return found


def differ(answers: dict[str, dict[str, Any]]) -> int:
    """The largest difference of two vectors' numbers, in thousandths, over all texts."""
    ours = answers[OURS]["requests"]
    numbers = (
        abs(a - b)
        for other in answers.values()
        for one, two in zip(ours, other["requests"], strict=True)
        for a, b in zip(one["tokens"][0], two["tokens"][0], strict=True)
    )
    return max(numbers)


def passes(running: Running, workload: str, args: argparse.Namespace, vocab: int) -> Figures:
    """Texts a second of each side, the median of the turns' ratios, and how far vectors differ."""
    speeds: dict[str, list[float]] = {name: [] for name in running.sessions}
    divide, worst = (32 if args.smoke else 1), 0
    for turn in range(-1, args.passes):  # the first warms up
        asked, answers = jobs(workload, vocab, turn + 1, divide), {}
        for name in sorted(running.sessions, reverse=turn % 2 == 1):
            answers[name], _ = one_pass(running.sessions[name], asked)
            if turn >= 0:
                speeds[name].append(len(asked) / answers[name]["seconds"])
        worst = max(worst, differ(answers))
    found: Figures = {"texts": len(asked), "tokens": sum(len(one.prompt) + 2 for one in asked)}
    for name, each in speeds.items():
        found[name] = {"texts_per_s": round(median(each), 1)}
        if name != OURS:
            ratios = zip(speeds[OURS], each, strict=True)
            found[name]["ours_over_this"] = round(median(a / b for a, b in ratios), 2)
            found[name]["largest_difference_thousandths"] = worst
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    config = TINY if args.smoke else MINI_LM
    with tempfile.TemporaryDirectory() as scratch:
        model = checkpoint(Path(scratch) / "model", config)
        settings = {"model": str(model), "dtype": "float32", "batch_size": args.batch_size}
        running = Running([OURS, *args.peers], settings, PEERS)
        try:
            for workload in WORKLOADS:
                yield {workload: passes(running, workload, args, config["vocab_size"])}
        finally:
            running.close()
        yield running.told()


def wrong(figures: Figures) -> str:
    """Vectors that are not the other side's."""
    worst = [
        figures[name].get(OTHER, {}).get("largest_difference_thousandths", 0)
        for name in WORKLOADS
        if name in figures
    ]
    return f"vectors differ by {max(worst)} thousandths" if max(worst, default=0) > 1 else ""


def headline(args: argparse.Namespace, figures: Figures) -> dict[str, str]:
    """Each workload's ratio."""
    return {
        f"embeddings of {name} texts, beside sentence-transformers": (
            f"{figures[name][OURS]['texts_per_s']:,.0f} texts/s, "
            f"{figures[name][OTHER]['ours_over_this']} times as many"
        )
        for name in WORKLOADS
        if OTHER in figures.get(name, {})
    }


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--peers", type=names_of([OTHER], 0), default=[OTHER]),
        flag("--passes", type=int, default=5),
        flag("--batch-size", type=int, default=32, help="of sentence-transformers; its default"),
    ),
    smoke={"peers": [], "passes": 1},
    wrong=wrong,
    headline=headline,
)
