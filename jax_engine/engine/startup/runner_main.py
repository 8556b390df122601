"""The process of an engine's runners: `python -m jax_engine.engine.startup.runner_main ADDRESS`.

`build.remote_runners` starts it. It beats before it has imported JAX.
"""

import sys
from collections.abc import Sequence
from typing import Any

from jax_engine.processes.placement import bind_to_cores
from jax_engine.processes.runner_process import serve
from jax_engine.processes.stage_link import Folders
from jax_engine.step import Runner


def build(settings: tuple[Any, Any, list[int]], folders: Folders) -> tuple[Any, Sequence[Runner]]:
    """The runners of an engine, and what the driver gets to know of them.

    Args:
        settings: The engine's, the `ProcessRank` of this process among several, and its cores.
        folders: Folders of its sockets, and of those of the next stage.
    """
    config, seat, cores = settings
    bind_to_cores(cores)
    from jax_engine.engine.startup.build import told_runners

    return told_runners(config, seat, folders)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], build))
