"""Memory that sharing saves (Figure 15 of the paper): parallel samples and beams of one prompt.

    python -m benchmarks.memory_sharing --save

Short instructions, and outputs of Alpaca's mean length (58 tokens, §6.1), all requests at once. A
real model decides which beams win, so how long they share is real too. Prefix caching is off: what
is counted is what forks share. The paper's figures are OPT-13B's on Alpaca.
"""

import argparse
from typing import Any

import numpy as np

from benchmarks.report import write_result
from jax_engine import EngineConfig, LLMEngine, RequestOutputKind, SamplingParams
from jax_engine.engine.build import EngineParts, build_engine

WIDTHS = (2, 4, 6)
PAPER_PERCENT = {"parallel": (6.09, 8.53, 9.79), "beam": (37.56, 53.13, 55.16)}
MEAN_OUTPUT = 58
PROMPTS = (
    "Give three tips for keeping a small garden healthy during a hot and dry summer.",
    "Rewrite the following sentence in the past tense: The children walk to school every day.",
    "What is the difference between a virus and a bacterium? Explain it to a ten year old.",
    "Write a short poem about the sea at night and a ship that comes home late.",
    "List five questions that I should ask before I rent a flat in a large city.",
    "Explain in a few sentences why the sky is blue and why sunsets are red.",
    "Suggest a name and a slogan for a bakery that sells nothing but bread and butter.",
    "Summarise what a database index does, and when it makes a query slower instead of faster.",
)


def params(kind: str, width: int, output_len: int, seed: int) -> SamplingParams:
    """A request for `width` outputs of this length."""
    beams = kind == "beam"
    return SamplingParams(
        n=width,
        use_beam_search=beams,
        temperature=0.0 if beams else 1.0,
        seed=seed,
        max_tokens=output_len,
        ignore_eos=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def measure(parts: EngineParts, kind: str, width: int, num_requests: int) -> dict[str, Any]:
    """Serves the requests; the share of blocks saved over all steps, and the most in one step."""
    engine = LLMEngine(parts)  # counts from zero
    lengths = 1 + np.random.default_rng(0).poisson(MEAN_OUTPUT - 1, num_requests)
    for i, length in enumerate(lengths.tolist()):
        prompt = PROMPTS[i % len(PROMPTS)]
        engine.add_request(str(i), prompt, params(kind, width, length, i))
    while engine.has_unfinished_requests():
        engine.step()
    stats = engine.stats()
    return {
        "saved_percent": round(100 * stats.mean_sharing_saving, 2),
        "peak_saved_percent": round(100 * stats.peak_sharing_saving, 2),
        "peak_blocks_used": stats.peak_used_blocks,
        "steps": stats.num_steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="as for LLM; SmolLM2-135M-Instruct by default")
    parser.add_argument("--num-requests", type=int, default=len(PROMPTS))
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    config = EngineConfig(
        model=args.model,
        max_model_len=256,
        max_num_seqs=max(WIDTHS) * args.num_requests,
        num_gpu_blocks_override=max(WIDTHS) * args.num_requests * 256 // args.block_size,
        block_size=args.block_size,
        enable_prefix_caching=False,
        swap_space=0,
    )
    parts = build_engine(config)
    result = {}
    print("              saved     at most   paper (OPT-13B, Alpaca)")
    for kind, paper in PAPER_PERCENT.items():
        for width, theirs in zip(WIDTHS, paper, strict=True):
            found = measure(parts, kind, width, args.num_requests)
            result[f"{kind}_{width}"] = found | {"paper_percent": theirs}
            ours = found["saved_percent"], found["peak_saved_percent"]
            print(f"{kind:>8} {width}  {ours[0]:>6.2f} %  {ours[1]:>6.2f} %  {theirs:>6.2f} %")
    if args.save:
        saved = [result[f"beam_{width}"]["saved_percent"] for width in WIDTHS]
        figures = ", ".join(f"{value:.0f}" for value in saved)
        headline = {"KV memory saved by sharing, beam width 2, 4, 6": f"{figures} %"}
        write_result("memory_sharing", result, arguments=args, headline=headline)


if __name__ == "__main__":
    main()
