"""KV waste at saturation (§2 and Figure 2 of the paper: vLLM 96.3 % used), the model stubbed out.

    python -m benchmarks.kv_waste --save

Which block holds what is the scheduler's and the block manager's doing, so no model is needed:
the engine serves requests with ShareGPT lengths, all at once, on a pool that they fill several
times over. Prefix caching is off, so that only blocks in use count.
"""

import argparse
from typing import Any

from benchmarks.host_time import MAX_MODEL_LEN, MODEL, stubbed_engine
from benchmarks.kv_usage import look, summarise
from benchmarks.report import write_result
from benchmarks.workload import sharegpt_requests
from jax_engine import RequestOutputKind, SamplingParams

SLOTS = 15_700  # tokens: Table 1 of the paper, OPT-13B on one A100
LOOK_EVERY = 8


def measure(block_size: int, scheduling: str, num_requests: int) -> dict[str, Any]:
    """Serves the requests and looks at the pool every few steps."""
    engine = stubbed_engine(
        block_size=block_size,
        num_gpu_blocks_override=SLOTS // block_size,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=256,
        scheduling=scheduling,
        enable_prefix_caching=False,
    )
    vocab_size = int(str(MODEL["vocab_size"]))
    requests = sharegpt_requests(num_requests, vocab_size=vocab_size, max_model_len=MAX_MODEL_LEN)
    for i, request in enumerate(requests):
        params = SamplingParams(
            max_tokens=request.output_len,
            ignore_eos=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        engine.add_request(str(i), request.prompt_token_ids, params)
    looks = []
    steps = 0
    while engine.has_unfinished_requests():
        engine.step()
        steps += 1
        if steps % LOOK_EVERY == 0:
            looks.append(look(engine))
    return summarise(looks) | {"steps": steps, "preemptions": engine.stats().num_recomputed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--num-requests", type=int, default=400)
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    result = {}
    for scheduling in ("unified", "sosp"):
        for block_size in (8, 16, 32):
            found = measure(block_size, scheduling, args.num_requests)
            result[f"{scheduling}_block_size_{block_size}"] = found
            waste = found["kv_waste_at_saturation_percent"]
            print(f"{scheduling:>8}, B = {block_size:>2}: {waste} % of the slots in use are empty")
    if args.save:
        waste = result["unified_block_size_16"]["kv_waste_at_saturation_percent"]
        write_result(
            "kv_waste", result, arguments=args, headline={"KV waste at saturation": f"{waste} %"}
        )


if __name__ == "__main__":
    main()
