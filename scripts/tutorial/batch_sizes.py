"""Thirty requests in a pool of 128 slots: how many are in each step of Orca's, and of paging's."""

from reference.baselines import OrcaServer
from reference.simulated_paging import PagedServer
from reference.simulator import Server, TraceRequest


def systems() -> dict[str, Server]:
    """The same memory, the same longest request of 64 tokens."""
    limits = {"max_model_len": 64, "max_num_seqs": 64}
    return {
        "Orca (Max)": OrcaServer(128, "max", **limits),
        "Orca (Oracle)": OrcaServer(128, "oracle", **limits),
        "paged": PagedServer(
            128, block_size=4, watermark=0.0, preemption_mode="recompute", **limits
        ),
    }


def batch_sizes(server: Server) -> list[int]:
    """How many requests are in each step: prompts of 8 tokens, outputs of 8, 16 or 24."""
    for number in range(30):
        server.add(number, TraceRequest(0.0, prompt_len=8, output_len=8 + 8 * (number % 3)))
    sizes = []
    while server.busy:
        sizes.append(int(server.step().usage.requests))
    return sizes
