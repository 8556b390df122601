"""Kernels for a CPU, compiled by Numba and called by XLA where they stand in a step."""

import logging
from typing import Any

from numba.core import event

logger = logging.getLogger("pallas_kernels.compile")


class _SaysWhenCold(event.Listener):  # type: ignore[misc]
    """One line before the first of these functions that is not in Numba's cache is compiled."""

    def on_start(self, happening: Any) -> None:
        function = happening.data["dispatcher"].py_func
        if str(function.__module__).startswith(__name__):  # None in code from a string
            event.unregister("numba:compile", self)
            logger.info("compiling the kernels for this CPU, which later starts will find ...")

    def on_end(self, happening: Any) -> None:
        pass


event.register("numba:compile", _SaysWhenCold())
