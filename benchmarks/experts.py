"""A decode step of a mixture of experts, against reading the bytes of the experts that it uses.

The models have the shapes of Granite 3.1 1B-A400M and of OLMoE 1B-7B (four of its layers), and
random weights in bfloat16. The bound is the time to read all weights but those of the experts that
no token chose, at the bandwidth that all cores together reach. Every round draws the same tokens.
Bandwidth and the steps of both models take turns, and the best of each counts, since others may
use the machine.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.engines import MODEL, dummy_engine
from benchmarks.machine_limits import read_bandwidth
from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.step_profile.cases import Case
from jax_engine import LLMEngine
from jax_engine.layers import experts

GRANITE = MODEL | {
    "architectures": ["GraniteMoeForCausalLM"],
    "vocab_size": 49155,
    "hidden_size": 1024,
    "intermediate_size": 512,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": True,
}
OLMOE = MODEL | {
    "architectures": ["OlmoeForCausalLM"],
    "vocab_size": 50304,
    "hidden_size": 2048,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": False,
}
TINY = GRANITE | {"hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2}
MODELS = {"granite_1b_a400m": GRANITE, "olmoe_1b_7b_4_layers": OLMOE}
ROWS, CONTEXT = (1, 4, 8), 64
STEPS = 8


def counting_hits(case: Case) -> float:
    """Experts that have a token, on average over the layers of the decode steps."""
    hits: list[int] = []
    sort_pairs = experts.sort_pairs

    def counted(*arguments: Any) -> experts.Sorted:
        pairs = sort_pairs(*arguments)
        jax.debug.callback(lambda n: hits.append(int(n)), (jnp.diff(pairs.starts) > 0).sum())
        return pairs

    compiled = case.engine.worker.steps._compiled
    before = dict(compiled)
    compiled.clear()
    experts.sort_pairs = counted
    try:
        case.run(STEPS)
        jax.effects_barrier()
    finally:
        experts.sort_pairs = sort_pairs
        compiled.clear()
        compiled.update(before)
    return float(np.mean(hits))


def weight_bytes(engine: LLMEngine) -> tuple[int, int]:
    """Bytes of one expert in all layers, and of everything else that a step reads."""
    steps, expert, others = engine.worker.steps, 0, 0
    params = jax.tree.unflatten(steps._structure, steps.weights)
    arrays = {jax.tree_util.keystr(p): a for p, a in jax.tree_util.tree_leaves_with_path(params)}
    untied = any("['head']" in path for path in arrays)
    for path, array in arrays.items():
        if "['experts']['gate_up']" in path or "['experts']['down']" in path:
            expert += array.nbytes // array.shape[1]
        elif not (untied and "['embed']" in path):  # of which a few rows are looked up
            others += array.nbytes
    return expert, others


class Measured:
    """A model's decode steps by their rows, measured a round at a time."""

    def __init__(self, model: dict[str, Any]) -> None:
        engine = dummy_engine(
            model,
            dtype="bfloat16",
            max_model_len=256,
            max_num_seqs=max(ROWS),
            num_gpu_blocks_override=256,
            enable_prefix_caching=False,
        )
        self.expert, self.others = weight_bytes(engine)
        self.cases = {n: Case(engine, n, CONTEXT, prefill=False, temperature=1.0) for n in ROWS}
        self.hits = {n: counting_hits(case) for n, case in self.cases.items()}
        self.best = {n: np.full(STEPS, np.inf) for n in ROWS}

    def round(self) -> None:
        for n, case in self.cases.items():
            times = [step["device"] for step in case.run(STEPS)]
            self.best[n] = np.minimum(self.best[n], times)

    def figures(self, rows: int, bandwidth: float) -> dict[str, float]:
        size = self.others + self.hits[rows] * self.expert
        reading, step = 1e3 * size / bandwidth, float(self.best[rows].mean())
        return {
            "experts_hit": round(self.hits[rows], 1),
            "read_mib": round(size / 2**20),
            "reading_ms": round(reading, 2),
            "step_ms": round(step, 2),
            "step_over_reading": round(step / reading, 2),
        }


def run(args: argparse.Namespace) -> Iterator[Figures]:
    models = {"tiny": TINY} if args.smoke else MODELS
    measured = {name: Measured(model) for name, model in models.items()}
    bandwidth = 0.0
    for _ in range(args.rounds):
        for one in measured.values():
            bandwidth = max(bandwidth, read_bandwidth())
            one.round()
    yield {"read_bandwidth_gb_per_s": round(bandwidth / 1e9, 1)}
    for name, one in measured.items():
        yield {name: {f"rows_{n}": one.figures(n, bandwidth) for n in ROWS}}


BENCHMARK = Benchmark(run, flags=(flag("--rounds", type=int, default=8),), smoke={"rounds": 1})
