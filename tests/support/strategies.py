"""What random engines and random requests look like: small, crowded, and odd.

Pools have 2 to 20 blocks, tokens come from an alphabet of 3 (so that prefixes recur), and times and
priorities are few (so that they tie).
"""

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st

from tests.support.some_adapters import some_adapter

VOCABULARY = 3
EOS = 2


@dataclass(frozen=True)
class GivenCosts:
    """What the oracle's scheduler reads; the engine's calls for it, as for what is measured."""

    seconds_per_block: float
    seconds_per_token: float = 1.0

    def __call__(self) -> "GivenCosts":
        return self


@dataclass(frozen=True)
class Settings:
    """One random engine: the arguments of a block manager and of a scheduler."""

    block_size: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    watermark: float
    enable_prefix_caching: bool
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    scheduling: str
    policy: str
    preemption_mode: str | None
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int
    seconds_per_block: float = 1.0
    """What moving a block costs where recomputing a token costs 1 (preemption_mode "auto")."""
    max_loras: int = 0

    def block_manager(self, block_manager_class: Any, **more: Any) -> Any:
        return block_manager_class(
            self.block_size,
            self.num_gpu_blocks,
            self.num_cpu_blocks,
            watermark=self.watermark,
            enable_prefix_caching=self.enable_prefix_caching,
            **more,
        )

    @property
    def scheduler_arguments(self) -> dict[str, Any]:
        return {
            "max_num_seqs": self.max_num_seqs,
            "max_num_batched_tokens": self.max_num_batched_tokens,
            "max_model_len": self.max_model_len,
            "scheduling": self.scheduling,
            "policy": self.policy,
            "preemption_mode": self.preemption_mode,
            "enable_chunked_prefill": self.enable_chunked_prefill,
            "long_prefill_token_threshold": self.long_prefill_token_threshold,
            "max_loras": self.max_loras,
        } | self._costs()

    def _costs(self) -> dict[str, Any]:
        if self.preemption_mode != "auto":
            return {}
        return {"preemption_costs": GivenCosts(self.seconds_per_block)}


@dataclass(frozen=True)
class Request:
    """One random request; most fit into most engines, some into none."""

    prompt: tuple[int, ...]
    n: int
    best_of: int | None
    max_tokens: int | None
    min_tokens: int
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool
    arrival_time: float
    priority: int
    cache_salt: str | None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    adapter: int | None = None

    @property
    def num_samples(self) -> int:
        return self.best_of or self.n

    @property
    def params(self) -> SimpleNamespace:
        """Greedy, so a stub that has no randomness of its own can serve it."""
        return SimpleNamespace(
            n=self.n,
            best_of=self.best_of,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop_token_ids=list(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            has_penalties=False,
            wants_prompt=False,
            drops_output=False,
            seed=None,
            temperature=0.0,
            top_n_sigma=0.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            logit_bias=None,
            repetition_penalty=1.0,
            frequency_penalty=0.0,
            presence_penalty=0.0,
            use_beam_search=self.use_beam_search,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
        )

    def group(self, group_class: Any, request_id: str) -> Any:
        """A sequence group of this request; for classes that take the oracle's arguments."""
        return group_class(
            request_id,
            list(self.prompt),
            self.params,
            {EOS},
            self.arrival_time,
            self.priority,
            self.cache_salt,
            adapter=None if self.adapter is None else some_adapter(self.adapter),
        )


@st.composite
def settings(draw: st.DrawFn, scheduling: str | None = None) -> Settings:
    """Engines with pools of 2 to 20 blocks. In half of them a sequence may take most of the pool
    and there is room for many sequences, so that they preempt; the other half is anything.
    """
    scheduling = scheduling or draw(st.sampled_from(["unified", "sosp", "sosp-mixed"]))
    chunked = draw(st.booleans()) if scheduling == "unified" else True
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    num_gpu_blocks = draw(st.integers(2, 20))
    if draw(st.booleans()):
        max_num_seqs = draw(st.sampled_from([6, 10, 16]))
        max_model_len = max(4, block_size * num_gpu_blocks * draw(st.sampled_from([2, 3, 4])) // 5)
    else:
        max_num_seqs = draw(st.integers(1, 8))
        max_model_len = draw(st.integers(2, 40))
    chunks_prompts = scheduling == "unified" and chunked
    least = 1 if chunks_prompts else max(max_model_len, max_num_seqs)
    return Settings(
        block_size=block_size,
        num_gpu_blocks=num_gpu_blocks,
        num_cpu_blocks=draw(st.sampled_from([40, 8, 3, 1, 0])),
        watermark=draw(st.sampled_from([0.0, 0.01, 0.1, 0.3])),
        enable_prefix_caching=scheduling == "unified" and draw(st.booleans()),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=draw(st.integers(least, least + 16)),
        max_model_len=max_model_len,
        scheduling=scheduling,
        policy=draw(st.sampled_from(["fcfs", "priority"])),
        preemption_mode=draw(st.sampled_from([None, "recompute", "swap", "auto"])),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 3])) if chunks_prompts else 0,
        seconds_per_block=draw(st.sampled_from([0.1, 1.0, 3.0])),
        max_loras=draw(st.sampled_from([2, 0, 1, 3])),
    )


def token_ids(min_size: int, max_size: int) -> st.SearchStrategy[tuple[int, ...]]:
    tokens = st.integers(0, VOCABULARY - 1)
    return st.lists(tokens, min_size=min_size, max_size=max_size).map(tuple)


@st.composite
def requests(
    draw: st.DrawFn, max_model_len: int, *, beams: bool = False, adapters: bool = False
) -> Request:
    """Requests of up to 8 samples, for an engine of this max_model_len; a few do not fit, and more
    do not fit at once.

    With `beams` a third of them are beam searches, with `adapters` most have one of five.
    """
    n = draw(st.sampled_from([1, 1, 1, 2, 2, 3, 7]))
    half = max(1, max_model_len // 2)
    return Request(
        prompt=draw(token_ids(1, min(16, half)) | token_ids(0, 16)),
        n=n,
        best_of=draw(st.sampled_from([None, None, None, n, n + 1])),
        max_tokens=draw(st.sampled_from([half, max_model_len, None, 1, 2, 5])),
        min_tokens=draw(st.sampled_from([0, 0, 1, 3])),
        stop_token_ids=draw(st.sampled_from([(), (), (), (1,), (0, EOS)])),
        ignore_eos=draw(st.integers(0, 5)) < 5,
        arrival_time=float(draw(st.integers(0, 3))),
        priority=draw(st.integers(0, 2)),
        cache_salt=draw(st.sampled_from([None, None, None, "a"])),
        use_beam_search=beams and draw(st.integers(0, 2)) == 0,
        length_penalty=draw(st.sampled_from([1.0, 0.0, 2.0, -1.0])),
        early_stopping=draw(st.sampled_from([False, True, "never"])),
        adapter=draw(st.none() | st.integers(0, 4)) if adapters else None,
    )


def next_token(token_ids: Any, index: int) -> int:
    """The stub model: what follows these tokens in sample `index`. A pure function of both."""
    return (_mix(token_ids, index) // 7) % VOCABULARY


def next_candidates(token_ids: Any) -> list[tuple[int, float]]:
    """The stub model for a beam: (token, log-probability) of all tokens, the best first.

    After some tokens nothing may come: a beam that gets there dies.
    """
    if _mix(token_ids, 0) % 6 == 0:
        return []
    weights = [1 + (_mix(token_ids, 0) // 7 + token) * 37 % 11 for token in range(VOCABULARY)]
    pairs = [(token, math.log(weight / sum(weights))) for token, weight in enumerate(weights)]
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def _mix(token_ids: Any, index: int) -> int:
    mixed = index + 1
    for token_id in token_ids:
        mixed = (mixed * 31 + int(token_id) + 7) % 1_000_003
    return mixed
