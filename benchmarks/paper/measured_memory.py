"""What the KV blocks hold while requests wait, and how many requests run: Figures 2 and 13.

Which block holds what is decided by the scheduler and the block manager, so the model is stubbed
out. The engine serves requests with ShareGPT lengths, all at once, on the paper's number of slots.
"""

from collections.abc import Iterator
from statistics import mean

from benchmarks.engines import stubbed_engine
from benchmarks.paper.figure import Figure, Row
from benchmarks.paper.memory import BATCHED, SLOTS, STATES
from benchmarks.paper.traces import MAX_MODEL_LEN, sharegpt, trace
from jax_engine import LLMEngine, RequestOutputKind, SamplingParams

BLOCK_SIZES = (8, 16, 32)
NUM_SLOTS = SLOTS["OPT-13B"]
ASSUMPTION = (
    f"{{}} requests with ShareGPT lengths at once, {NUM_SLOTS:,} slots; the mean over steps in "
    "which a request waits. The model is stubbed out."
)


def figure_2(smoke: bool) -> Figure:
    """Tokens, and the unfilled rest of blocks, as shares of all slots."""
    requests, rows = _requests(80 if smoke else 400, smoke), []
    for size in BLOCK_SIZES[1:2] if smoke else BLOCK_SIZES:
        engine = _engine(size, "unified", smoke)
        looks = [stored_and_held(engine) for _ in _crowded_steps(engine, requests)]
        share = 100 / (engine.scheduler.block_manager.num_gpu_blocks * size)
        stored, held = (share * mean(column) for column in zip(*looks, strict=True))
        paper = STATES["vLLM"][0] if size == 16 else None
        rows.append(Row(f"B = {size}, tokens", stored, "%", paper))
        rows.append(Row(f"B = {size}, unfilled rest of blocks", held - stored, "%"))
    return Figure(
        "What the KV cache holds", "Figure 2", "measured", [ASSUMPTION.format(len(requests))], rows
    )


def figure_13(smoke: bool) -> Figure:
    """Requests that run at a time."""
    requests = _requests(80 if smoke else 240, smoke)
    engine = _engine(16, "sosp-mixed", smoke)
    batched = mean(len(engine.scheduler.running) for _ in _crowded_steps(engine, requests))
    paper = BATCHED["ShareGPT, 2 req/s"]["vLLM"]
    return Figure(
        "Average number of batched requests",
        "Figure 13",
        "measured",
        [f"B = 16. {ASSUMPTION.format(len(requests))}"],
        [Row("ShareGPT: this engine", batched, "requests", paper)],
    )


def _engine(block_size: int, scheduling: str, smoke: bool) -> LLMEngine:
    return stubbed_engine(
        block_size=block_size,
        num_gpu_blocks_override=(NUM_SLOTS // 7 if smoke else NUM_SLOTS) // block_size,
        max_model_len=MAX_MODEL_LEN,
        max_num_batched_tokens=2560,
        max_num_seqs=256,
        scheduling=scheduling,
        enable_prefix_caching=False,
    )


def _requests(seconds: float, smoke: bool) -> list[tuple[int, int]]:
    """Lengths of the requests that come in this time at one a second; a fraction of them in smoke.

    A prompt and its output together are no longer than the model's limit.
    """
    parts = 4 if smoke else 1
    return [
        (request.prompt_len // parts + 1, request.output_len // parts)
        for request in trace(sharegpt(), 1.0, seconds)
    ]


def _crowded_steps(engine: LLMEngine, requests: list[tuple[int, int]]) -> Iterator[None]:
    """Serves the requests; stops after every step in which a request waits."""
    for i, (prompt, output) in enumerate(requests):
        params = SamplingParams(
            max_tokens=max(1, min(output, engine.max_model_len - prompt)),
            ignore_eos=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        engine.add_request(str(i), {"prompt_token_ids": [5] * prompt}, params)
    while engine.has_unfinished_requests():
        engine.step()
        if engine.scheduler.waiting:
            yield


def stored_and_held(engine: LLMEngine) -> tuple[int, int]:
    """Slots that hold keys and values, and slots of all blocks in use; shared ones count once."""
    scheduler = engine.scheduler
    size = scheduler.block_manager.block_size
    fill: dict[int, int] = {}
    for seq in (seq for group in scheduler.running for seq in group.unfinished()):
        for index, block in enumerate(scheduler.block_manager.block_table(seq.seq_id)):
            stored = min(size, max(0, seq.num_computed_tokens - index * size))
            fill[block] = max(fill.get(block, 0), stored)
    return sum(fill.values()), len(fill) * size
