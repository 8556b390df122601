"""How often a drafter's draw is the model's, by how the two draws are coupled.

SmolLM2 answers at a temperature, and at each position a drafter's distribution q stands beside the
model's p. The drafters are SmolLM2 itself without some of its middle layers. From p and q follows
the probability that the guess is accepted, for four rules:

- greedy: the drafter guesses its most probable token x, and the model draws it: p(x).
- same number: both draw by inverse CDF with one uniform number. They agree where the token's two
  intervals overlap. This costs nothing here, since a draw's number follows from seed and position.
- race: both take the token that maximises log p + Gumbel noise, with the same noise.
- rejection: sum of min(p, q), the most that a guess which is drawn from q can reach. A greedy guess
  is not drawn from q, so it may be accepted more often.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.compare.checkpoint import hf_directory
from benchmarks.compare.environments import folder
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.speculation import measure, texts
from jax_engine import LLM, SamplingParams, TokensPrompt

TEMPERATURES = (0.5, 1.0)
DROPPED = (2, 4, 8)  # middle layers that the drafter lacks
SMALLEST = 1e-5  # tokens less probable than this to both take no part in the race
SETTINGS: dict[str, Any] = {
    "dtype": "float32", "max_model_len": 2048, "max_num_seqs": 1, "num_gpu_blocks_override": 256,
    "skip_tokenizer_init": True,
}  # fmt: skip


def without_layers(model: Path, into: Path, count: int) -> Path:
    """A copy of a Llama's directory that lacks `count` layers in the middle."""
    config = json.loads((model / "config.json").read_text("utf-8"))
    layers = config["num_hidden_layers"]
    first = (layers - count) // 2
    kept = {}
    for name, tensor in load_file(model / "model.safetensors").items():
        parts = name.split(".")
        if parts[:2] == ["model", "layers"]:
            layer = int(parts[2])
            if first <= layer < first + count:
                continue
            parts[2] = str(layer if layer < first else layer - count)
        kept[".".join(parts)] = tensor
    into.mkdir(parents=True)
    save_file(kept, into / "model.safetensors", metadata={"format": "pt"})
    text = json.dumps(config | {"num_hidden_layers": layers - count})
    (into / "config.json").write_text(text, "utf-8")
    return into


def distributions(
    llm: LLM, prompt: list[int], temperature: float, size: int, said: list[int] | None = None
) -> tuple[list[np.ndarray], list[int]]:
    """Logits at each position of an answer, and the answer.

    Args:
        said: An answer that is forced; None: it is drawn.
    """
    seen: list[np.ndarray] = []

    def watch(output_ids: list[int], logits: np.ndarray) -> np.ndarray:
        seen.append(np.array(logits))
        if said is None:
            return logits
        forced = np.full_like(logits, -np.inf)
        forced[said[len(output_ids)]] = 0
        return forced

    params = SamplingParams(
        temperature=temperature, seed=3, max_tokens=len(said) if said else size, ignore_eos=True,
        logits_processors=[watch],
    )  # fmt: skip
    (output,) = llm.generate(TokensPrompt(prompt_token_ids=prompt), params, use_tqdm=False)
    return seen, list(output.outputs[0].token_ids)


def agreements(p: np.ndarray, q: np.ndarray) -> dict[str, float]:
    """The probability of an accepted guess by each rule.

    Args:
        p, q: [V] The model's distribution and the drafter's.
    """
    above, below = np.cumsum(p), np.cumsum(q)
    end = np.minimum(above, below)
    start = np.maximum(above - p, below - q)
    return {
        "greedy": float(p[q.argmax()]),
        "same number": float(np.maximum(0, end - start).sum()),
        "race": _race(p, q),
        "rejection": float(np.minimum(p, q).sum()),
    }


def _race(p: np.ndarray, q: np.ndarray) -> float:
    """x wins both races with probability 1 / sum over y of max(p(y) / p(x), q(y) / q(x))."""
    taking_part = np.maximum(p, q) >= SMALLEST
    p, q = np.maximum(p[taking_part], 1e-30), np.maximum(q[taking_part], 1e-30)
    ratios = np.maximum(p[None, :] / p[:, None], q[None, :] / q[:, None])
    return float((1 / ratios.sum(axis=1)).sum())


def softmax(logits: np.ndarray, temperature: float) -> np.ndarray:
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    found: np.ndarray = weights / weights.sum()
    return found


def run(args: argparse.Namespace) -> Iterator[Figures]:
    """For each drafter and temperature, the mean of each rule over all positions."""
    model = hf_directory(folder() / "checkpoints")
    target, tokenizer = (
        LLM(str(model), **SETTINGS),
        LLM(max_model_len=512, num_gpu_blocks_override=64),
    )
    conversations = [*texts.chat(), *texts.code_edits(), *texts.quotes()]
    chosen = conversations[:: -(-len(conversations) // args.count)]
    prompts = measure.chat_prompts(tokenizer, chosen)
    for dropped in DROPPED:
        with tempfile.TemporaryDirectory() as scratch:
            path = without_layers(model, Path(scratch) / "draft", dropped)
            draft = LLM(str(path), **SETTINGS)
            for temperature in TEMPERATURES:
                rules: dict[str, list[float]] = {}
                for prompt in prompts:
                    seen, said = distributions(target, prompt, temperature, args.tokens)
                    guessed, _ = distributions(draft, prompt, temperature, args.tokens, said)
                    for p, q in zip(seen, guessed, strict=True):
                        one = agreements(softmax(p, temperature), softmax(q, temperature))
                        for name, share in one.items():
                            rules.setdefault(name, []).append(share)
                name = f"{30 - dropped} of 30 layers, temperature {temperature}"
                shares = {rule: round(float(np.mean(x)), 3) for rule, x in rules.items()}
                yield {name: shares | {"positions": len(rules["greedy"])}}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--tokens", type=int, default=64, help="of an answer"),
        flag("--count", type=int, default=12, help="of texts"),
    ),
    smoke={"tokens": 4, "count": 1},
    files=lambda args, found: {"coupling": found},
)
