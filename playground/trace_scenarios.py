"""Small workloads to watch: the paper's Figures 7 and 8, and what happens when memory runs out.

The words are the tokens. What each request will say is written down beforehand, since it is the
memory that is to be watched; everything else is decided by the real scheduler and block manager.

>>> SCENARIOS["copy-on-write"].requests[0].outputs
('fathers brought hope .', 'mothers carried us all .')
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reference.speculation import ngram_drafts, ngram_match


@dataclass(frozen=True)
class Guessing:
    """Prompt lookup before each step: the numbers of `speculation.ngram_drafts`."""

    num_drafts: int
    prompt_lookup_min: int = 1
    prompt_lookup_max: int = 3

    def match(self, token_ids: list[int]) -> tuple[int, int] | None:
        return ngram_match(token_ids, self.prompt_lookup_min, self.prompt_lookup_max)

    def drafts(self, token_ids: list[int]) -> list[int]:
        shortest, longest = self.prompt_lookup_min, self.prompt_lookup_max
        return ngram_drafts(token_ids, self.num_drafts, shortest, longest)


@dataclass(frozen=True)
class TracedRequest:
    """Arrives before step `step`; `outputs` has the words of each sample. A "." ends one.

    With an `adapter`, the scheduler's `max_loras` must be among the scenario's settings.
    A beam search of width `beams` has instead `ways`: after each last word, the words that may
    follow, with their probabilities.
    """

    name: str
    prompt: str
    outputs: tuple[str, ...] = ()
    step: int = 1
    beams: int = 0
    ways: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    adapter: str | None = None


@dataclass(frozen=True)
class Scenario:
    """`settings` go to the scheduler; `most_steps` ends a scenario that would not end itself.

    With `guessing`, the scheduler's `max_draft_tokens` must be among the settings.
    """

    name: str
    title: str
    about: str
    requests: tuple[TracedRequest, ...]
    num_gpu_blocks: int = 9
    num_cpu_blocks: int = 0
    watermark: float = 0.01
    free_order: tuple[int, ...] | None = None
    enable_prefix_caching: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    most_steps: int = 100
    block_size: int = 4
    guessing: Guessing | None = None


PAPERS_ORDER = (0, 4, 6, 8, 2, 5, 3, 1, 7)
"""A free list that hands out the block numbers of the paper's figures."""

GETTYSBURG = "Four score and seven years ago our"
TIMES = "It was the best of times"
CROWD = (
    TracedRequest("A", GETTYSBURG, ("fathers brought forth on this continent a new nation .",)),
    TracedRequest("B", TIMES, (", it was the worst of times .",)),
    TracedRequest("C", "To be or", ("not to be .",), step=6),
)
INSTRUCTION = "Answer in one word , and be kind :"


TWO_REQUESTS = Scenario(
    "two-requests",
    "Two requests (Figure 7)",
    "Each request sees its own blocks 0, 1, 2. In memory they lie where there was room. A block is "
    "taken only when a token is about to be written into it.",
    (
        TracedRequest("A", GETTYSBURG, ("fathers brought forth .",)),
        TracedRequest("B", TIMES, (", it was .",), step=3),
    ),
    free_order=PAPERS_ORDER,
)

COPY_ON_WRITE = Scenario(
    "copy-on-write",
    "Copy-on-write with two samples (Figure 8)",
    "Two samples of one prompt share its blocks. The prompt's last block is not full, so both want "
    "to write there: the first one gets a copy.",
    (TracedRequest("A", GETTYSBURG, ("fathers brought hope .", "mothers carried us all .")),),
    free_order=PAPERS_ORDER,
)

BEAM_SEARCH = Scenario(
    "beam-search",
    "Beam search, three beams (as in Figure 9)",
    "After each word, the three most probable texts go on. One that falls behind lets go of its "
    "blocks; one with two children forks. Most of it moves no data: tables and counts change.",
    (
        TracedRequest(
            "A",
            "The cat sat on the",
            beams=3,
            ways={
                "the": {"mat": 0.5, "sofa": 0.3, "roof": 0.2},
                "mat": {"and": 0.6, ",": 0.3},
                "sofa": {"and": 0.2, "in": 0.1},
                "roof": {"to": 0.9, "of": 0.1},
                "and": {"slept": 0.7, "purred": 0.2},
                "to": {"sing": 0.8, "sleep": 0.1},
                ",": {"then": 0.5, "so": 0.2},
                "slept": {".": 0.9, "well": 0.05},
                "sing": {"all": 0.6, ".": 0.3},
                "then": {"it": 0.5, "slept": 0.2},
                "all": {"night": 0.8, "day": 0.1},
                "it": {"slept": 0.6, "left": 0.3},
                "well": {".": 0.9},
            },
        ),
    ),
    num_gpu_blocks=12,
)

SWAP = Scenario(
    "preemption-swap",
    "Memory runs out: swap",
    "Six blocks are too few for A and B. When none is free, the request that came last gives way: "
    "its blocks are copied to the memory of the CPU, and back when there is room.",
    CROWD,
    num_gpu_blocks=6,
    num_cpu_blocks=4,
    settings={"preemption_mode": "swap"},
)

RECOMPUTE = Scenario(
    "preemption-recompute",
    "Memory runs out: recompute",
    "The same requests. Now the blocks of the one that gives way are dropped. Its words are known, "
    "so their keys and values can be computed again, in one go like a prompt.",
    CROWD,
    num_gpu_blocks=6,
    settings={"preemption_mode": "recompute"},
)

PREFIX_HIT = Scenario(
    "prefix-hit",
    "A prompt that begins like another",
    "Full blocks are remembered by their content, even after their request has ended. Who begins "
    "with the same words takes these blocks, and computes the rest only.",
    (
        TracedRequest("A", f"{INSTRUCTION} capital of France ?", ("Paris .",)),
        TracedRequest("B", f"{INSTRUCTION} colour of snow ?", ("white .",), step=2),
        TracedRequest("C", f"{INSTRUCTION} opposite of up ?", ("down .",), step=4),
        TracedRequest("D", GETTYSBURG, ("fathers .",), step=6),
    ),
    num_gpu_blocks=8,
    enable_prefix_caching=True,
)

CHUNKED_PREFILL = Scenario(
    "chunked-prefill",
    "A long prompt in chunks",
    "A step computes at most 8 tokens. A is decoding and takes one of them each time; the long "
    "prompt of B gets what is left, so A never waits for it.",
    (
        TracedRequest("A", TIMES, (", it was the worst of times .",)),
        TracedRequest(
            "B",
            f"{GETTYSBURG} fathers brought forth on this continent a new nation conceived in",
            ("liberty .",),
            step=2,
        ),
    ),
    num_gpu_blocks=10,
    settings={"max_num_batched_tokens": 8},
)

GUESSES = Scenario(
    "guesses",
    "Guess, then verify",
    "Where its last words stood before, a request guesses that the same words follow, three at a "
    "time. What the model draws says which are right. B finds the blocks that these have filled.",
    (
        TracedRequest(
            "A", "the cat sat on the mat so", ("the cat sat on the rug and the cat sat on it .",)
        ),
        TracedRequest("B", "the cat sat on the mat so the cat sat on the sofa", (".",), 5),
    ),
    num_gpu_blocks=9,
    enable_prefix_caching=True,
    settings={"max_draft_tokens": 8},
    guessing=Guessing(num_drafts=3),
)

GREET = "Greet a friend of yours :"

ADAPTERS = Scenario(
    "adapters",
    "Three adapters, two slots",
    "A running request needs its adapter in a slot of the device. C waits until nobody uses one "
    "of the two that lie there, and D, which needs no slot, waits behind it. All six have the same "
    "prompt: the prefix cache finds it under the same adapter alone.",
    (
        TracedRequest("A", GREET, ("Ahoy , matey .",), adapter="pirate"),
        TracedRequest("B", GREET, ("Hail , friend of mine .",), 2, adapter="verse"),
        TracedRequest("C", GREET, ("Bonjour , mon vieux .",), 3, adapter="french"),
        TracedRequest("D", GREET, ("Hello .",), 3),
        TracedRequest("E", GREET, ("O friend .",), 6, adapter="verse"),
        TracedRequest("F", GREET, ("Arr .",), 7, adapter="pirate"),
    ),
    num_gpu_blocks=13,
    enable_prefix_caching=True,
    settings={"max_loras": 2},
)

HANG = Scenario(
    "hang",
    "A scheduler that hangs",
    "Without the admission rule, B is accepted though its prompt needs more blocks than there are. "
    "It waits for ever at the head of the queue, and so does everybody behind it.",
    (
        TracedRequest("A", "To be or", ("not to .",)),
        TracedRequest("B", f"{GETTYSBURG} fathers brought forth on this continent", ("a .",), 2),
        TracedRequest("C", TIMES, (", it .",), step=3),
    ),
    num_gpu_blocks=3,
    settings={"admission_rule": False},
    most_steps=5,
)

SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        TWO_REQUESTS,
        COPY_ON_WRITE,
        BEAM_SEARCH,
        SWAP,
        RECOMPUTE,
        PREFIX_HIT,
        CHUNKED_PREFILL,
        GUESSES,
        ADAPTERS,
        HANG,
    )
}
