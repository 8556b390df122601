"""Everything a request can be, in one continuous batch (the paper's "mixed decoding", 4.4).

Greedy, sampled, n > 1, beam, guided and restricted requests come and go at any moment, in pools
that preempt; some are aborted, some run out of time. Nobody hangs, nothing leaks, and who is not
aborted gets what the oracle gives it alone.
"""

import functools
from collections.abc import Callable
from typing import Any

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from jax_engine import StructuredOutputsParams
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.support.builders import Pool, build_pair, model_pair
from tests.support.byte_tokenizer import letter, save_letter_tokenizer
from tests.support.engine_pair import MAX_LEN
from tests.support.engine_under_test import Limits, Request
from tests.support.in_numpy import InNumpy
from tests.support.in_process import InProcess
from tests.support.side_by_side import SideBySide
from tests.support.tiny_llama import EOS, VOCAB

POOLS = [Pool(3, 17), Pool(16, 6)]  # for little more than one long request of three sequences
LETTERS = [token for token in range(VOCAB) if token != EOS]
PREFIX = [7, 11, 13, 5, 9, 4, 8, 6, 10, 12]  # prompts share beginnings: there are blocks to share


@functools.cache
def tokenizer(pool: Pool) -> Tokenizer:
    path, _ = model_pair(pool.sliding_window)
    save_letter_tokenizer(path, VOCAB, EOS)
    return load_tokenizer(path)


def guide_of(choices: list[str]) -> Callable[[list[int]], set[int]]:
    """The oracle's guide for `choice`: what may follow this output. No grammar, only the words."""

    def allowed(output: list[int]) -> set[int]:
        text = "".join(map(letter, output))
        rest = [choice[len(text) :] for choice in choices if choice.startswith(text)]
        return {ord(one[0]) - ord(letter(0)) if one else EOS for one in rest}

    return allowed


@st.composite
def kinds(draw: st.DrawFn) -> dict[str, Any]:
    """One of each kind, as arguments of `Request`; they share lengths, so that they meet."""
    max_tokens = draw(st.sampled_from([2, 9, 16]))
    ignore_eos = draw(st.booleans())
    common: dict[str, Any] = {"max_tokens": max_tokens, "seed": draw(st.integers(0, 3))}
    kind = draw(st.sampled_from(["greedy", "sampled", "n", "beam", "guided", "restricted"]))
    event(kind)
    if kind == "guided":
        word = st.lists(st.sampled_from(LETTERS), min_size=1, max_size=12)
        choices = draw(st.lists(word.map(lambda tokens: "".join(map(letter, tokens))), min_size=1))
        guide = StructuredOutputsParams(choice=choices)
        limits = Limits(structured_outputs=guide, guide=guide_of(choices))
        return {"given": common | draw(st.sampled_from(GUIDED)), "limits": limits}
    common["ignore_eos"] = ignore_eos
    if kind == "beam":
        early_stopping = draw(st.sampled_from([False, True, "never"]))
        return {"given": common | BEAMS | {
            "n": draw(st.integers(1, 3)), "early_stopping": early_stopping
        }}  # fmt: skip
    own: dict[str, Any] = {"temperature": 0.0 if kind == "greedy" else 1.3}
    own["n"] = draw(st.sampled_from([2, 3, 6])) if kind == "n" else 1  # of 6 not all at once
    if kind == "restricted":
        own["allowed_token_ids"] = draw(st.lists(st.sampled_from(LETTERS), min_size=2, max_size=6))
    return {"given": common | own}


BEAMS = {"use_beam_search": True, "temperature": 0.0}
GUIDED = [{"temperature": 0.0}, {"temperature": 1.3, "n": 6}, BEAMS | {"n": 2}]


class Mixture(RuleBasedStateMachine):
    """Requests are compared with the oracle in each step, or once all have ended."""

    @initialize(
        pool=st.sampled_from(POOLS),
        scheduling=st.sampled_from(["unified", "unified", "sosp", "sosp-mixed"]),
        chunk=st.sampled_from([4, 9, MAX_LEN]),
        prefix_caching=st.booleans(),
        async_scheduling=st.booleans(),
        preemption_mode=st.sampled_from([None, "recompute", "swap"]),
        num_cpu_blocks=st.sampled_from([0, 6, 60]),
    )
    def build(self, pool: Pool, scheduling: str, chunk: int, **rest: Any) -> None:
        unified = scheduling == "unified"
        rest["prefix_caching"] &= unified
        engine, reference = build_pair(
            pool, scheduling=scheduling, enable_chunked_prefill=unified, tokenizer=tokenizer(pool),
            max_num_batched_tokens=chunk if unified else MAX_LEN, **rest,
        )  # fmt: skip
        exact = not rest["async_scheduling"] or not unified
        transformer = model_pair(pool.sliding_window)[1]
        self.pair = SideBySide(InProcess(engine), InNumpy(reference), transformer, exact=exact)

    @rule(
        several=st.lists(st.tuples(kinds(), st.integers(1, 10)), min_size=1, max_size=4),
        timeout=st.sampled_from([None, None, None, 2.5, 8.5]),
    )
    def add(self, several: list[tuple[dict[str, Any], int]], timeout: float | None) -> None:
        for own, prompt_len in several:
            number, now = len(self.pair.served), self.pair.now
            prompt = [*PREFIX[:prompt_len], LETTERS[number % len(LETTERS)]]
            request = Request(str(number), prompt, timeout=timeout, arrival_time=float(now), **own)
            self.pair.add(request)

    @rule(count=st.integers(1, 6))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.pair.step()

    @rule(which=st.integers(0, 9), in_outputs=st.booleans())
    def abort(self, which: int, in_outputs: bool) -> None:
        """One that is running, if any is; an id that is not running is nobody's."""
        running = [*self.pair.running]
        request_id = running[which % len(running)] if running else "nobody"
        if in_outputs:
            self.pair.step(lambda: [request_id])
        else:
            self.pair.abort(request_id)

    def teardown(self) -> None:
        """I20, I9, and the oracle's tokens for all."""
        if hasattr(self, "pair"):
            self.pair.finish()


TestMixture = Mixture.TestCase
# An example is a whole run of two engines: as long as two of the other suites.
TestMixture.settings = settings(max_examples=settings().max_examples // 2)
