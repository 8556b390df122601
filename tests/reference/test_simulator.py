"""The simulator: skipping changes nothing, and each system does with memory what it should."""

from collections.abc import Callable

import numpy as np
import pytest

from reference.baselines import KINDS, FasterTransformerServer, OrcaServer
from reference.cost_model import StepCost
from reference.scheduler_config import PreemptionMode, Scheduling
from reference.simulated_paging import PagedServer
from reference.simulator import Server, TraceRequest, Usage, simulate

COST = StepCost(0.03, 0.0002, 0.0001, 0.00001, 0.001)


def random_trace(seed: int, count: int = 40, *, samples: int = 1) -> list[TraceRequest]:
    """Short requests that come faster than they can be served."""
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(0.15, count))
    return [
        TraceRequest(
            float(arrival),
            int(rng.integers(1, 40)),
            int(rng.integers(1, 60)),
            int(rng.integers(1, samples + 1)),
        )
        for arrival in arrivals
    ]


def check_skipping(trace: list[TraceRequest], make: Callable[[], Server]) -> None:
    """Skipping changes nothing: the same steps at the same times, with the same memory."""
    skipping, stepping = make(), make()
    fast = simulate(trace, skipping, COST)
    slow = simulate(trace, stepping, COST, skip=False)
    assert fast.latencies == pytest.approx(slow.latencies, rel=1e-9)
    assert fast.num_steps == slow.num_steps
    for name, value in vars(slow.always.usage).items():
        assert vars(fast.always.usage)[name] == pytest.approx(value, rel=0.03, abs=2), name
    assert fast.crowded.seconds == pytest.approx(slow.crowded.seconds)
    assert not skipping.busy and not stepping.busy


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_skipping_changes_nothing_for_orca(kind: str, seed: int) -> None:
    trace = random_trace(seed, samples=2)
    check_skipping(trace, lambda: OrcaServer(1000, kind, max_model_len=128))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
def test_skipping_changes_nothing_for_faster_transformer(seed: int) -> None:
    check_skipping(random_trace(seed), lambda: FasterTransformerServer(600, max_model_len=128))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scheduling", ["sosp", "sosp-mixed", "unified"])
@pytest.mark.parametrize("mode", [None, "swap", "recompute"])
def test_skipping_changes_nothing_for_paging(
    seed: int, scheduling: Scheduling, mode: PreemptionMode | None
) -> None:
    servers = []

    def make() -> Server:
        servers.append(
            PagedServer(
                400 if seed else 10_000,
                block_size=(16, 1, 4, 8)[seed],
                scheduling=scheduling,
                preemption_mode=mode,
                max_model_len=128,
                max_num_seqs=12,
                max_num_batched_tokens=128,
            )
        )
        return servers[-1]

    check_skipping(random_trace(seed, 25, samples=1 + seed % 3), make)
    fast, slow = (server.scheduler for server in servers)
    assert fast.num_preemptions == slow.num_preemptions
    if seed in (1, 3):
        assert sum(fast.num_preemptions.values()) > 0
    assert fast.block_manager.num_free_gpu_blocks == fast.block_manager.num_gpu_blocks


def test_skipping_changes_nothing_with_a_shared_prefix() -> None:
    rng = np.random.default_rng(0)
    trace = [TraceRequest(0.1 * i, 40, int(rng.integers(1, 30)), prefix_len=32) for i in range(40)]
    for slots in (300, 3000):
        check_skipping(
            trace,
            lambda slots=slots: PagedServer(
                slots,
                block_size=8,
                scheduling="unified",
                enable_prefix_caching=True,
                max_model_len=128,
            ),
        )


def test_a_cached_prefix_saves_time() -> None:
    trace = [TraceRequest(0.1 * i, 40, 10, prefix_len=32) for i in range(40)]

    def run(caching: bool) -> float:
        server = PagedServer(
            3000, block_size=8, scheduling="unified", enable_prefix_caching=caching
        )
        return simulate(trace, server, StepCost(0.01, 0.001)).normalised_latency

    assert run(True) < 0.7 * run(False)


def test_paging_fits_more_requests_and_wastes_less_than_every_orca() -> None:
    trace = [TraceRequest(0.0, r.prompt_len, r.output_len) for r in random_trace(5, 200)]
    paged = simulate(trace, PagedServer(2048, block_size=4, max_model_len=128), COST)
    orcas = {k: simulate(trace, OrcaServer(2048, k, max_model_len=128), COST) for k in KINDS}
    stored = {kind: report.crowded.usage.stored for kind, report in orcas.items()}
    assert paged.crowded.usage.stored > stored["oracle"] > stored["pow2"] > stored["max"]
    assert orcas["max"].crowded.usage.requests == 16
    assert paged.clock < orcas["oracle"].clock < orcas["pow2"].clock < orcas["max"].clock


def test_usage_adds_up_to_the_pool() -> None:
    trace = random_trace(2)
    for server in (PagedServer(400, max_model_len=128), OrcaServer(400, "pow2", max_model_len=128)):
        usage = simulate(trace, server, COST).always.usage
        parts = usage.stored + usage.reserved + usage.internal + usage.other
        assert parts == pytest.approx(400)


def test_samples_share_the_blocks_of_their_prompt() -> None:
    trace = [TraceRequest(0.0, 32, 9, num_samples=4)]
    usage = simulate(trace, PagedServer(1024, block_size=8), COST, skip=False).always.usage
    assert usage.logical / usage.physical > 2
    orca = simulate(trace, OrcaServer(1024, "oracle"), COST, skip=False)
    assert orca.always.usage.stored == pytest.approx(4 * 36, rel=0.01)


def test_beams_share_more_than_samples() -> None:
    saved = []
    for beam_search in (False, True):
        trace = [TraceRequest(0.2 * i, 20, 40, 4, beam_search=beam_search) for i in range(12)]
        usage = simulate(trace, PagedServer(8192, block_size=4), COST).always.usage
        saved.append(1 - usage.physical / usage.logical)
    assert 0.1 < saved[0] < 0.7 * saved[1]


def test_a_beam_search_is_as_long_as_the_trace_says() -> None:
    trace = [TraceRequest(0.0, 8, 7, 3, beam_search=True)]
    assert simulate(trace, PagedServer(1024), StepCost(1.0, 0.0)).latencies == [7.0]


def test_faster_transformer_waits_for_the_longest_and_then_for_the_next_batch() -> None:
    cost = StepCost(1.0, 0.0)
    trace = [TraceRequest(0.0, 5, 2), TraceRequest(0.0, 9, 6), TraceRequest(0.0, 9, 3)]
    report = simulate(trace, FasterTransformerServer(256, max_model_len=128), cost)
    assert report.latencies == [6.0, 6.0, 9.0]


def test_a_request_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs 1 pieces of 120 slots, more than there are in 64"):
        simulate([TraceRequest(0.0, 100, 20)], OrcaServer(64, "oracle"), COST)


def test_orca_keeps_to_the_number_of_sequences() -> None:
    trace = [TraceRequest(0.0, 4, 4)] * 6
    report = simulate(trace, OrcaServer(4096, "oracle", max_num_seqs=2), COST)
    assert report.always.usage.requests == pytest.approx(2)


def test_a_crowd_waits_outside() -> None:
    """More than `accepts` lets in at a time: they are served in order all the same."""
    trace = [TraceRequest(0.0, 8, 4)] * 40
    server = PagedServer(256, block_size=4, max_model_len=64, max_num_seqs=2)
    latencies = simulate(trace, server, COST).latencies
    assert latencies == sorted(latencies) and len(set(latencies)) == 20


def test_usage_of_nothing_is_nothing() -> None:
    report = simulate([], OrcaServer(64, "max"), COST)
    assert report.always.usage == Usage() and report.clock == 0.0
