"""The cores and the GPUs on which each process of a model runs.

`VLLM_CPU_OMP_THREADS_BIND` names the cores of each rank, as vLLM reads it. XLA starts as many
threads as the process has cores at that time, so a process that is bound first has only its share
of threads. Several engines of one machine share no core and no GPU.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jax_engine.checks import shown
from jax_engine.errors import ConfigError

VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
AUTO, NO_BIND = "auto", "nobind"


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
    value = environment.get(VARIABLE, "").strip() or AUTO
    if value == NO_BIND or (value == AUTO and count == 1):
        return [[] for _ in range(count)]
    if value == AUTO:
        return split_cores(own, count)
    found = [_parse_cores(each, value, max(own, default=0)) for each in value.split("|")]
    if len(found) != count:
        raise ConfigError(
            f"the variable {VARIABLE} must name the cores of {count} ranks, with | between them, "
            f"got {shown(value)} with {len(found)}"
        )
    every = [core for each in found for core in each]
    wrong = sorted({core for core in every if core not in own or every.count(core) > 1})
    if wrong:
        raise ConfigError(
            f"the variable {VARIABLE} must name cores of this process ({_ranges(own)}), each once, "
            f"got {shown(value)} with {_ranges(wrong)}"
        )
    return found


def own_cores() -> list[int]:
    """The cores that this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def split_cores(cores: list[int], count: int) -> list[list[int]]:
    """Neighbouring cores for each of so many processes; all for all if there are too few."""
    if len(cores) < count:
        return [[] for _ in range(count)]
    borders = [len(cores) * number // count for number in range(count + 1)]
    return [cores[borders[i] : borders[i + 1]] for i in range(count)]


def bind_to_cores(cores: list[int]) -> None:
    """Binds this thread, and those that it starts from now on; none: any core."""
    if cores:
        os.sched_setaffinity(0, cores)


def _parse_cores(value: str, whole: str, most: int) -> list[int]:
    """The numbers of "0-3,6"; of those above `most` the first of each run, which is wrong as well.

    Raises:
        ConfigError: It is something else, or a run goes backwards.
    """
    found: list[int] = []
    for part in value.split(","):
        first, _, last = (part if "-" in part else f"{part}-{part}").strip().partition("-")
        if not (_is_number(first) and _is_number(last) and int(first) <= int(last)):
            raise ConfigError(
                f"the variable {VARIABLE} must be {AUTO}, {NO_BIND}, or cores of each rank as in "
                f"0-3|4-7, got {shown(whole)}"
            )
        found += range(int(first), min(int(last), max(int(first), most + 1)) + 1)
    return found


def _is_number(text: str) -> bool:
    return text.strip().isdecimal() and len(text) < 10


def _ranges(cores: list[int]) -> str:
    return ", ".join(map(str, cores)) or "none"


VISIBLE = "CUDA_VISIBLE_DEVICES"
GPUS = Path("/proc/driver/nvidia/gpus")  # one entry for each GPU of this machine


class Place(NamedTuple):
    """What an engine's process is given.

    Attributes:
        cores: Numbers of the cores that its threads may run on; none: on any.
        environment: Variables that must be set before JAX looks for devices.
        rank: The number of the engine, from 0, among those of one server.
    """

    cores: list[int]
    environment: dict[str, str]
    rank: int = 0


ANYWHERE = Place([], {})


def places(count: int, devices_each: int = 1) -> list[Place]:
    """Places for so many engines on this machine, which share no core and no GPU.

    `VLLM_CPU_OMP_THREADS_BIND` names the cores of all engines' ranks, those of the first engine
    first. Each engine gets its part of it.

    Args:
        devices_each: How many devices each of them needs.

    Raises:
        ConfigError: There are GPUs, and too few for the engines; or the variable names the cores
            of more or fewer ranks.
    """
    found = [ANYWHERE] if count == 1 else _apart(count, devices_each)
    return [place._replace(rank=rank) for rank, place in enumerate(found)]


def _apart(count: int, devices_each: int) -> list[Place]:
    """`places` for several engines."""
    gpus = visible_gpus(os.environ, sum(1 for _ in GPUS.iterdir()) if GPUS.is_dir() else 0)
    if gpus:
        if len(gpus) < count * devices_each:
            each = f" over tensor_parallel_size ({devices_each})" if devices_each > 1 else ""
            raise ConfigError(
                f"data_parallel_size must be at most the number of GPUs ({len(gpus)}){each}, "
                f"got {count}"
            )
        own = [gpus[devices_each * number :][:devices_each] for number in range(count)]
        return [Place([], {VISIBLE: ",".join(names)}) for names in own]
    value = os.environ.get(VARIABLE, "").strip() or AUTO
    if value == AUTO:
        return [Place(own, {}) for own in split_cores(own_cores(), count)]
    ranks = cores_of_ranks(count * devices_each, os.environ, own_cores())
    if value == NO_BIND:
        return [ANYWHERE] * count
    parts, found = value.split("|"), []
    for first in range(0, count * devices_each, devices_each):
        its = slice(first, first + devices_each)
        cores = sorted(core for each in ranks[its] for core in each)
        found.append(Place(cores, {VARIABLE: "|".join(parts[its])}))
    return found


def visible_gpus(environment: Mapping[str, str], count: int) -> list[str]:
    """The GPUs that JAX would see, as the variable names them; none where it is told to use none.

    Args:
        count: GPUs of the machine.
    """
    platforms = environment.get("JAX_PLATFORMS", "")
    if platforms and not {"cuda", "gpu"} & set(platforms.split(",")):
        return []
    if VISIBLE not in environment or not count:
        return [str(number) for number in range(count)]
    return [name.strip() for name in environment[VISIBLE].split(",") if name.strip()]
