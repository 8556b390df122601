"""JAX's plugin for AMD's GPUs on a machine that has none, and no ROCm.

It lies in a folder of its own in the environment of `make aot`: where JAX found it, each process
would look for a GPU and print that there is none.
"""

import platform
import sys
from pathlib import Path

from pallas_kernels.aot.rocm import stand_ins

# Where `make aot` installs the plugin.
FOLDER = Path(sys.prefix) / "rocm"
ENVIRONMENT = {"PYTHONPATH": str(FOLDER), "TF_ROCM_KEEP_XLA_TEMPFILES": "1"}


def lacking() -> str | None:
    """What this machine lacks to compile for an AMD GPU, or None."""
    system = (platform.system(), platform.machine())
    if system != ("Linux", "x86_64"):
        return f"Linux on x86-64, for which the plugin is made (this is {' on '.join(system)})"
    if not list(FOLDER.glob("jax_plugins/xla_rocm*")):
        return (
            f"JAX's plugin for ROCm in {FOLDER}: `make .venv-aot/.installed-rocm` installs what "
            "constraints-rocm.txt lists"
        )
    return None


def prepare() -> None:
    """Lets JAX load the plugin in this process, which has `ENVIRONMENT`.

    It must be called before JAX looks for devices.

    Raises:
        OSError: the loader of this system refuses a library in the place of one of ROCm's.
        RuntimeError: the plugin is not there.
    """
    lack = lacking()
    if lack is None and str(FOLDER) not in sys.path:
        lack = f"{FOLDER} in its PYTHONPATH"
    if lack is not None:
        raise RuntimeError(f"this process lacks {lack}")
    from jax._src import hardware_utils

    # The plugin registers where the driver lists a GPU. To compile it needs none.
    hardware_utils.num_available_amd_gpus = lambda stop_at=None: 1
    stand_ins.load(FOLDER.glob("jax_*/**/*.so"))
