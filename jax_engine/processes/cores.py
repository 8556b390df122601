"""Which cores the processes of a model run on: `VLLM_CPU_OMP_THREADS_BIND`, as vLLM reads it.

XLA makes as many threads as the process has cores when it starts, so its threads are bounded by
its share.
"""

import os
from collections.abc import Mapping

from jax_engine.checks import shown
from jax_engine.errors import ConfigError

VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
AUTO, NOWHERE = "auto", "nobind"


def cores_of_ranks(count: int, environment: Mapping[str, str], own: list[int]) -> list[list[int]]:
    """The cores of each of `count` processes, by rank; none: any core.

    Args:
        environment: Its variable is "0-3|4-7", cores for each rank; "auto" (the default),
            neighbouring cores for each of several; or "nobind".
        own: The cores that this process may use.

    Raises:
        ConfigError: The variable is something else, has another number of ranks, or a core that
            this process may not use, or that two ranks have.
    """
    said = environment.get(VARIABLE, "").strip() or AUTO
    if said == NOWHERE or (said == AUTO and count == 1):
        return [[] for _ in range(count)]
    if said == AUTO:
        return split(own, count)
    found = [_cores(each, said, max(own, default=0)) for each in said.split("|")]
    if len(found) != count:
        raise ConfigError(
            f"the variable {VARIABLE} must name the cores of {count} ranks, with | between them, "
            f"got {shown(said)} with {len(found)}"
        )
    every = [core for each in found for core in each]
    wrong = sorted({core for core in every if core not in own or every.count(core) > 1})
    if wrong:
        raise ConfigError(
            f"the variable {VARIABLE} must name cores of this process ({_ranges(own)}), each once, "
            f"got {shown(said)} with {_ranges(wrong)}"
        )
    return found


def own_cores() -> list[int]:
    """The cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def split(cores: list[int], count: int) -> list[list[int]]:
    """Neighbouring cores for each of so many processes; all for all if there are too few."""
    if len(cores) < count:
        return [[] for _ in range(count)]
    borders = [len(cores) * number // count for number in range(count + 1)]
    return [cores[borders[i] : borders[i + 1]] for i in range(count)]


def stay_on(cores: list[int]) -> None:
    """Binds this thread, and those that it starts from now on; none: any core."""
    if cores:
        os.sched_setaffinity(0, cores)


def _cores(said: str, whole: str, most: int) -> list[int]:
    """The numbers of "0-3,6"; of those above `most` the first of each run, which is wrong as well.

    Raises:
        ConfigError: It is something else, or a run goes backwards.
    """
    found: list[int] = []
    for part in said.split(","):
        first, _, last = (part if "-" in part else f"{part}-{part}").strip().partition("-")
        if not (_is_number(first) and _is_number(last) and int(first) <= int(last)):
            raise ConfigError(
                f"the variable {VARIABLE} must be {AUTO}, {NOWHERE}, or cores of each rank as in "
                f"0-3|4-7, got {shown(whole)}"
            )
        found += range(int(first), min(int(last), max(int(first), most + 1)) + 1)
    return found


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and len(text) < 10


def _ranges(cores: list[int]) -> str:
    return ", ".join(map(str, cores)) or "none"
