"""The properties of a scheduler: which subjects of a run they are about, and on which examples."""

import copy
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from hypothesis import strategies as st

from paged_conformance.properties import Broken, Capabilities, Elsewhere, Property, demand
from paged_conformance.scheduler.histories import FEATURES, examples
from paged_conformance.scheduler.run import SUBJECTS, Breach, Run


def _words(make: Any) -> Collection[str]:
    """What the factory says, as the command reads it: none if it says nothing."""
    words: Collection[str] = getattr(make, "capabilities", ())
    return words


def _check(make: Any, example: Any, *, about: Collection[str]) -> None:
    """One run. A rule of another subject ends the example: another property finds that."""
    try:
        Run(make, _words(make), example).all()
    except Breach as breach:
        kind = Broken if breach.subject in about else Elsewhere
        raise kind(str(breach)) from None


def _plans(make: Any, example: Any, **how: Any) -> list[Any]:
    """The rows of each step, empty steps left out."""
    run = Run(make, _words(make), example, **how)
    try:
        run.all()
    except Breach as breach:
        raise Elsewhere(str(breach)) from None
    return [rows for rows in run.plans if rows]


def _same(one: list[Any], other: list[Any], says: str) -> None:
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        demand(left == right, f"{says}: step {number} is {left} and {right}")
    demand(len(one) == len(other), f"{says}: {len(one)} and {len(other)} steps")


def _equal_priorities(make: Any, example: Any) -> None:
    plans = []
    for policy in ("fcfs", "priority"):
        one = copy.deepcopy(example)
        one["sizes"]["policy"] = policy
        for operation in one["history"]:
            if operation["op"] == "add":
                operation["request"]["priority"] = 0
        plans.append(_plans(make, one))
    _same(plans[0], plans[1], "first come, first served, and by equal priorities")


def _refusals(make: Any, example: Any) -> None:
    _check(make, example, about=("refusal", "left"))
    plans = [_plans(make, example, with_bad=with_bad) for with_bad in (True, False)]
    _same(plans[0], plans[1], "with requests that are refused, and without them")


def _repeats(make: Any, example: Any) -> None:
    plans = [_plans(make, example) for _ in range(2)]
    _same(plans[0], plans[1], "the same history twice")


def _about(
    name: str,
    sentence: str,
    *about: str,
    invariant: str | None = None,
    needs: Collection[str] = (),
    features: tuple[str, ...] = (),
    policy: str | None = None,
    caching: bool = False,
) -> Property:
    def drawn(has: Capabilities) -> st.SearchStrategy[Any]:
        return examples(has, features=features, policy=policy, caching=caching)

    check: Callable[[Any, Any], None] = partial(_check, about=about)
    return Property(name, sentence, drawn, check, invariant, needs)


PROPERTIES: tuple[Property, ...] = (
    _about(
        "each-token-once",
        "The rows of a sequence follow on each other, without a hole, without repetition and not "
        "beyond its end; a token is drawn exactly where all are computed.",
        "order",
        invariant="I23",
        features=("salts", "threshold"),
    ),
    _about(
        "limits-of-a-step",
        "A step keeps max_num_batched_tokens, max_num_seqs and the number of adapters.",
        "limits",
        invariant="I18",
        features=("adapters", "threshold"),
    ),
    _about(
        "rows-of-the-running",
        "A step has one row of a sequence at most, and none of a request that has ended, was "
        "aborted, or was preempted in this step.",
        "rows",
        invariant="I16",
    ),
    _about(
        "memory",
        "A block table covers what is computed, has no block twice, and each of its slots holds "
        "the keys and values of the sequence's own token.",
        "memory",
        invariant="I13",
        needs=("tables",),
    ),
    _about(
        "prefix-cache",
        "What a sequence takes from the prefix cache is computed, is its own prefix, and is never "
        "all of it.",
        "cache",
        "memory",
        invariant="I25",
        needs=("prefix_cache",),
        features=("salts", "adapters", "threshold"),
        caching=True,
    ),
    _about(
        "everything-finishes",
        "Steps are not empty while requests wait, and every accepted request finishes.",
        "progress",
        invariant="I20",
        features=("threshold", "adapters"),
    ),
    _about(
        "ends",
        "A request ends exactly with its stop token, max_tokens or max_model_len, with the tokens "
        "that it would have alone.",
        "ends",
        invariant="I32",
    ),
    _about(
        "first-come-first-served",
        "No request starts before one that came earlier.",
        "first-come",
        invariant="I17",
        needs=("fcfs",),
        policy="fcfs",
    ),
    _about(
        "priorities",
        "The most urgent request starts first, and none is preempted in a step that computes a "
        "less urgent one.",
        "priority",
        invariant="I24",
        needs=("priorities",),
        policy="priority",
    ),
    Property(
        "equal-priorities",
        "Equal priorities are first come, first served: the plans are the same.",
        lambda has: examples(has, policy="fcfs"),
        _equal_priorities,
        "I24",
        ("priorities", "fcfs", "repeats"),
    ),
    _about(
        "nothing-left",
        "The scheduler holds exactly the unfinished requests; when all have ended or were aborted, "
        "all blocks are free.",
        "left",
        invariant="I9",
        needs=("state",),
        features=("salts", "drafts", "ahead", "swap", "samples", "adapters"),
    ),
    Property(
        "refusals",
        "A request that fits is accepted; one that is refused leaves no trace.",
        lambda has: examples(has, bad=True),
        _refusals,
        "I21",
        ("admission", "repeats"),
    ),
    Property(
        "repeats",
        "The same calls give the same plans.",
        lambda has: examples(has, features=FEATURES),
        _repeats,
        None,
        ("repeats",),
    ),
    _about(
        "drafts",
        "With right and wrong drafts all of the above holds, and only verified tokens count.",
        *SUBJECTS,
        invariant="I29",
        needs=("drafts",),
        features=("drafts",),
    ),
    _about(
        "swapping",
        "With swapping all of the above holds: what is swapped in is what was swapped out.",
        *SUBJECTS,
        invariant="I14",
        needs=("swap",),
        features=("swap", "samples"),
    ),
    _about(
        "samples",
        "Where requests fork into samples all of the above holds, and no sample writes into a "
        "block that another one reads.",
        *SUBJECTS,
        invariant="I10",
        needs=("samples",),
        features=("samples",),
    ),
    _about(
        "adapters",
        "With adapters all of the above holds, and none reads another one's cache.",
        *SUBJECTS,
        invariant="I54",
        needs=("adapters",),
        features=("adapters", "salts"),
    ),
    _about(
        "plans-ahead",
        "With a plan made before the last one's tokens are known all of the above holds.",
        *SUBJECTS,
        invariant="I32",
        needs=("ahead",),
        features=("ahead", "salts", "threshold"),
    ),
    _about(
        "all-together",
        "All of the above holds when everything that the target can do is used at once.",
        *SUBJECTS,
        features=FEATURES,
    ),
)  # fmt: skip
