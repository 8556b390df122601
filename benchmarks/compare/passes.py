"""Passes of one workload over several peers, taking turns, and what they come to."""

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.compare import quiet
from benchmarks.compare.environments import OURS
from benchmarks.compare.metrics import agreement, figures, medians, ratio
from benchmarks.compare.session import PeerFailed, Session
from benchmarks.compare.workloads import WORKLOADS, Job, Scale

BUSY_CORES = 0.1  # others' load above which a pass is repeated
MAX_REPEATS = 2


@dataclass
class Runs:
    """One peer's passes: figures of each that counts, others' load in cores, an answer."""

    figures: list[dict[str, float]] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    discarded: int = 0
    answer: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None


def one_pass(session: Session, jobs: list[Job]) -> tuple[dict[str, Any], float]:
    """The answer, and the cores that others kept busy meanwhile, on average."""
    session.resume()
    pids = [*session.pids(), os.getpid()]
    busy, used, started = quiet.busy_seconds(), quiet.used_seconds(pids), time.monotonic()
    answer = session.ask(jobs)
    seconds = time.monotonic() - started
    others = (quiet.busy_seconds() - busy) - (quiet.used_seconds(pids) - used)
    session.pause()
    return answer, max(0.0, others) / seconds


def requests_of(name: str, scale: Scale, turn: int, attempt: int = 0) -> list[Job]:
    """A workload's requests, with tokens that no other pass has: nothing of them is in a cache."""
    seed = zlib.crc32(f"{name}, turn {turn}, attempt {attempt}".encode())
    return WORKLOADS[name][1](scale, seed)


def _counted(session: Session, make: Callable[[int], list[Job]], runs: Runs) -> None:
    """A measured pass; while others are busy it is repeated, and at last kept with their load.

    Tokens are compared of the first attempt, for which all peers have the same prompts.

    Args:
        make: The requests of an attempt.
    """
    for attempt in range(MAX_REPEATS + 1):
        jobs = make(attempt)
        answer, others = one_pass(session, jobs)
        if attempt == 0:
            runs.answer = answer
        if others <= BUSY_CORES or attempt == MAX_REPEATS:
            break
        runs.discarded += 1
    runs.figures.append(figures(jobs, answer))
    runs.others.append(round(others, 3))


def take_turns(
    name: str, sessions: dict[str, Session], scale: Scale, num_runs: int
) -> dict[str, Runs]:
    """An unmeasured pass each, then `num_runs` rounds: ours, then every peer; odd rounds backwards.

    A peer that fails is left out from then on, with its reason.
    """
    found = {peer: Runs() for peer in sessions}
    for turn in range(num_runs + 1):
        make = partial(requests_of, name, scale, turn)
        order = list(sessions) if turn % 2 else list(reversed(sessions))
        for peer in order:
            runs = found[peer]
            if runs.failure is not None:
                continue
            try:
                if turn == 0:
                    jobs = make()
                    figures(jobs, one_pass(sessions[peer], jobs)[0])
                else:
                    _counted(sessions[peer], make, runs)
            except (PeerFailed, ValueError) as error:
                runs.failure = str(error)
                print(f"  {name} {peer}: {error}", flush=True)
                continue
            what = f"{runs.figures[-1]['output_tokens_per_s']} tokens/s" if turn else "warm"
            print(f"  {name} {peer}: {what}", flush=True)
    return found


def summary(found: dict[str, Runs], greedy: bool, compare_tokens: bool) -> dict[str, Any]:
    """For each peer: medians, every pass's speed, our ratio to it, and equal tokens in float32."""
    ours, table = found[OURS], {}
    for peer, runs in found.items():
        if runs.failure is not None:
            table[peer] = {"failure": runs.failure}
            continue
        calm = [
            one for one, load in zip(runs.figures, runs.others, strict=True) if load <= BUSY_CORES
        ]
        row: dict[str, Any] = dict(medians(calm or runs.figures))
        row["each_pass_tokens_per_s"] = " ".join(
            str(one["output_tokens_per_s"]) for one in runs.figures
        )
        row["others_each_pass_cores"] = " ".join(map(str, runs.others))
        row["others_cores"] = max(runs.others)
        row["busy"] = max(runs.others) > BUSY_CORES
        row["discarded_passes"] = runs.discarded
        if peer != OURS and ours.failure is None:
            pairs = zip(ours.others, runs.others, strict=True)
            calm_pairs = [max(pair) <= BUSY_CORES for pair in pairs]
            row["quiet_pairs"] = sum(calm_pairs)
            row["ours_over_this"] = ratio(ours.figures, runs.figures, calm_pairs)
            if greedy and compare_tokens:
                row["tokens"] = agreement(ours.answer, runs.answer)
        table[peer] = row
    return table
