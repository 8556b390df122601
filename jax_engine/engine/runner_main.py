"""The process of an engine's runners: `python -m jax_engine.engine.runner_main ADDRESS`.

`build.remote_runners` starts it. It beats before it has imported JAX.
"""

import sys
from collections.abc import Sequence
from typing import Any

from jax_engine.processes.cores import stay_on
from jax_engine.processes.runner_process import serve
from jax_engine.step import Runner


def build(settings: tuple[Any, Any, list[int]]) -> tuple[Any, Sequence[Runner]]:
    """The runners of an engine, and what the driver gets to know of them.

    Args:
        settings: The engine's, the `Seat` of this process among several, and its cores.
    """
    *given, cores = settings
    stay_on(cores)
    from jax_engine.engine.build import told_runners

    return told_runners(*given)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], build))
