"""Where each of several engines of one machine runs: its own cores, or its own GPUs."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jax_engine.errors import ConfigError
from jax_engine.processes.cores import AUTO, NOWHERE, VARIABLE, cores_of_ranks, own_cores, split

VISIBLE = "CUDA_VISIBLE_DEVICES"
GPUS = Path("/proc/driver/nvidia/gpus")  # one entry for each GPU of this machine


class Place(NamedTuple):
    """What an engine's process is given.

    Attributes:
        cores: Numbers of the cores that its threads may run on; none: on any.
        environment: Variables that must be set before JAX looks for devices.
    """

    cores: list[int]
    environment: dict[str, str]


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
    if count == 1:
        return [ANYWHERE]
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
    said = os.environ.get(VARIABLE, "").strip() or AUTO
    if said == AUTO:
        return [Place(own, {}) for own in split(own_cores(), count)]
    ranks = cores_of_ranks(count * devices_each, os.environ, own_cores())
    if said == NOWHERE:
        return [ANYWHERE] * count
    parts, found = said.split("|"), []
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
