"""Requests whose constraints may leave no token, at the engine and at the oracle: the same end.

Most pairs of the few tokens that are allowed are bad words, so that greedy, sampled, n and beam
requests get stuck at the first token, later, or never.
"""

from typing import Any

import numpy as np
from hypothesis import event, example, given
from hypothesis import strategies as st

from reference.sampling_options import NO_TOKEN
from tests.properties.test_engine_against_reference import run_both
from tests.support.builders import Pool, model_pair
from tests.support.engine_pair import MAX_LEN, same_beams_or_rounding, same_or_rounding
from tests.support.engine_under_test import Limits, Request
from tests.support.tiny_llama import EOS

POOLS = [Pool(3, 17), Pool(16, 6)]  # small enough to preempt
PROMPT = [7, 11, 13, 5, 9, 4]
ALLOWED = [5, 9, EOS]
PAIRS = [[first, second] for first in ALLOWED for second in ALLOWED]


def strict(bad_words: list[list[int]], how: str = "bad words", **settings: Any) -> dict[str, Any]:
    """Forbids tokens that complete a bad word, by either of two ways to say so."""
    given = {"max_tokens": 12, "temperature": 0.0, "allowed_token_ids": ALLOWED} | settings
    if how == "bad words":
        return {"given": given, "limits": Limits(bad_words_token_ids=bad_words)}

    def processor(output: list[int], logits: np.ndarray) -> np.ndarray:
        forbidden = [word[-1] for word in bad_words if [*output[-1:], word[-1]] == word]
        logits[forbidden] = -np.inf
        return logits

    return {"given": given, "limits": Limits(logits_processors=[processor])}


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    requests = []
    for i in range(draw(st.integers(1, 5))):
        bad_words = draw(st.permutations(PAIRS))[: draw(st.integers(4, 9))]
        kind = draw(st.sampled_from(["greedy", "sampled", "n", "beam", "beam"]))
        settings: dict[str, Any] = {
            "greedy": {},
            "sampled": {"temperature": 1.3},
            "n": {"temperature": 1.3, "n": 3},
            "beam": {"use_beam_search": True, "n": draw(st.integers(1, 3))},
        }[kind]
        own = strict(
            bad_words, draw(st.sampled_from(["bad words", "processor"])), seed=i,
            ignore_eos=draw(st.booleans()), **settings,
        )  # fmt: skip
        prompt = [*PROMPT[: draw(st.integers(1, 6))], 3 + i]
        step = draw(st.integers(0, 2))
        requests.append(Request(str(i), prompt, step=step, arrival_time=float(i), **own))
    return requests


@given(
    pool=st.sampled_from(POOLS),
    workload=workloads(),
    scheduling=st.sampled_from(["unified", "unified", "sosp", "sosp-mixed"]),
    async_scheduling=st.booleans(),
    mode=st.sampled_from([None, "recompute", "swap"]),
)
@example(
    POOLS[0],
    [
        Request(str(i), [3, 4], step=0, arrival_time=float(i), **own)
        for i, own in enumerate([
            strict([[5]], "processor", allowed_token_ids=[5]),
            strict(PAIRS, n=3, temperature=1.3, seed=1),
            strict(PAIRS, n=2, use_beam_search=True, ignore_eos=True),
            strict(PAIRS, n=3, use_beam_search=True),
        ])
    ],
    "unified", True, None,
)  # fmt: skip
def test_who_is_stuck_is_aborted_by_both_and_others_go_on(
    pool, workload, scheduling, async_scheduling, mode
) -> None:
    """The same tokens, finish and stop reasons; and nothing is left behind (I9, in `run_both`)."""
    pair = run_both(
        pool,
        {
            "scheduling": scheduling, "enable_chunked_prefill": scheduling == "unified",
            "prefix_caching": False, "async_scheduling": async_scheduling,
            "max_num_batched_tokens": MAX_LEN, "preemption_mode": mode, "num_cpu_blocks": 60,
        },
        workload,
    )  # fmt: skip
    _, transformer = model_pair(None)
    for served in pair.served:
        output, group = served.output, served.group
        reasons = {one.stop_reason for one in output.outputs if one.finish_reason == "abort"}
        assert reasons <= {NO_TOKEN}
        event("stuck" if reasons else "not stuck")
        if group.beam_search:
            same_beams_or_rounding(transformer, group, output)
            continue
        assert len(output.outputs) == len(group.seqs)
        for one in output.outputs:
            if same_or_rounding(transformer, group, one.index, one.token_ids):
                wanted = group.seqs[one.index]
                assert (one.finish_reason, one.stop_reason) == (
                    wanted.finish_reason, wanted.stop_reason,
                )  # fmt: skip
