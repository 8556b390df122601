"""What examples there are: sizes of a scheduler, requests, and what is done in which order.

An example is `{"sizes": .., "history": [..]}`. Operations: `add` with a request; `abort`, of the
n-th unfinished request by name, or of nobody; `step`, a plan and its tokens; `plan` and `land`,
the two halves. What does not apply at its place is passed over.

"""

from typing import Any

from hypothesis import strategies as st

from paged_conformance.drawing import Numbers, record, records
from paged_conformance.properties import Capabilities
from paged_conformance.scheduler.saying import VOCABULARY

FEATURES = ("drafts", "swap", "samples", "adapters", "ahead", "salts", "threshold")
LONGEST = 24  # tokens of a sequence
LENGTH, OPERATION = 24, 10  # of a history, and bytes of an operation


def examples(
    has: Capabilities,
    *,
    features: tuple[str, ...] = (),
    policy: str | None = None,
    bad: bool = False,
    caching: bool = False,
) -> st.SearchStrategy[Any]:
    """Examples for a target.

    Args:
        features: Those of `FEATURES` that an example uses, where the target has them.
        policy: "fcfs" or "priority"; None draws it.
        bad: Whether requests are drawn that must be refused.
        caching: Whether the prefix cache is always on, where there is one.
    """
    chosen = tuple(one for one in features if one in has)

    def spell(sizes: bytes, operations: list[bytes]) -> Any:
        made = _sizes(Numbers(sizes), has, chosen, policy)
        made["prefix_cache"] |= caching and "prefix_cache" in has
        history = [_operation(one, made, has, chosen, bad) for one in operations if one[0]]
        return {"sizes": made, "history": history}

    return st.builds(spell, record(14), records(LENGTH, OPERATION))


def _sizes(
    drawn: Numbers, has: Capabilities, chosen: tuple[str, ...], policy: str | None
) -> dict[str, Any]:
    """Pools are small, so that they fill up; but every request fits if it is alone."""
    below = drawn.below
    low, high = has.sizes.get("min_block_size", 1), has.sizes.get("max_block_size", 8)
    block_size = low + below(min(high - low, 7) + 1)
    longest = 4 + below(max(LONGEST, 2 * block_size) - 3)
    max_num_seqs = 1 + below(5)
    chunked = below(3) < 2 and "chunks" in has
    least = max(max_num_seqs, 1 if chunked else longest)
    budget = least + below(13)
    alone = (-(-longest // block_size) + 2) * (1 + below(2) * ("samples" in chosen))
    policies = ["fcfs", "priority"] if "priorities" in has else ["fcfs"]
    return {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "max_model_len": longest,
        "block_size": block_size,
        "num_blocks": alone + below(7),
        "swap_blocks": (1 + below(16)) * ("swap" in chosen),
        "policy": policy or policies[below(len(policies))],
        "chunked": chunked,
        "threshold": below(7) * (chunked and "threshold" in chosen),
        "prefix_cache": bool(below(2)) and "prefix_cache" in has,
        "max_drafts": (1 + below(4)) * ("drafts" in chosen),
        "max_adapters": (1 + below(2)) * ("adapters" in chosen),
        "ahead": bool(below(4)) and "ahead" in chosen,
    }


def _operation(
    drawn: bytes, sizes: dict[str, Any], has: Capabilities, chosen: tuple[str, ...], bad: bool
) -> dict[str, Any]:
    kind, rest = drawn[0], drawn[1:]
    if kind < 90:
        return {"op": "add", "request": _request(Numbers(rest), sizes, has, chosen, bad)}
    if kind < 200:
        wishes = [{"right": one % 5, "wrong": one // 5 % 3} for one in rest[:4]]
        drafts = {"drafts": wishes} if "drafts" in chosen else {}
        return {"op": "step" if kind < 180 else "plan", **drafts}
    if kind < 220 or "aborts" not in has:
        return {"op": "land" if kind < 220 else "step"}
    return {"op": "abort", "which": rest[0] % 6, "times": 2 if rest[1] > 191 else 1}


def _request(
    drawn: Numbers, sizes: dict[str, Any], has: Capabilities, chosen: tuple[str, ...], bad: bool
) -> dict[str, Any]:
    """Prompts of few words, which begin alike; lengths around the ends of blocks."""
    below = drawn.below
    name, size, longest = "abcdefgh"[below(8)], sizes["block_size"], sizes["max_model_len"] - 1
    ends = [one for n in range(1, 4) for one in (n * size, n * size + 1) if one <= longest]
    length = below(longest + 4) if bad else 1 + below(longest)
    at_an_end = below(3 * len(ends) or 1)
    if at_an_end and at_an_end <= len(ends):
        length = ends[at_an_end - 1]
    branch, word = below(13), 2 + below(VOCABULARY - 2)
    max_tokens, ending = 1 + below(12), below(4)
    features = below(256)
    return {
        "id": name,
        "prompt": [2] * min(length, branch) + [word] * max(0, length - branch),
        "max_tokens": max_tokens,
        "ignore_eos": ending < 3,
        "stop_token_ids": [4] if ending == 2 and "stop_token_ids" in has else [],
        "priority": below(4) if "priorities" in has else 0,
        "samples": 1 + features % 3 if "samples" in chosen else 1,
        "adapter": features // 3 % 4 if "adapters" in chosen else 0,
        "salt": features // 12 % 2 if "salts" in chosen else 0,
    }
