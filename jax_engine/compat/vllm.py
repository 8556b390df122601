"""vLLM's modules under their own names, so that programs written for it run on this engine.

    from jax_engine.compat import vllm      # before the first import of vLLM's modules
    from vllm import LLM, SamplingParams
    from vllm.utils.argparse_utils import FlexibleArgumentParser

A program stays unchanged if it is started by `python -m jax_engine.compat.vllm PROGRAM`, and
`python -m jax_engine.compat.vllm -m vllm.entrypoints.openai.api_server` is `jax-engine serve`.

The import puts the stand-in in place, unless vLLM itself is installed: then that stays what
`import vllm` gives, with a warning, until `install(replace=True)` is called. Only names with
something behind them are there (`jax_engine.compat.names`). The import of any other one is an
ImportError that says what it would need.
"""

import importlib.util
import runpy
import sys
import warnings
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from jax_engine.compat.names import explanation, is_module, where

VERSION = "0.32.0"  # of vLLM's interface, which programs ask for
SERVER = "vllm.entrypoints.openai.api_server"


class _Finder(DistributionFinder):
    """Makes the modules of the table, and answers `importlib.metadata.version("vllm")`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != "vllm":
            return None
        if not is_module(name):
            raise ModuleNotFoundError(explanation(name))
        return ModuleSpec(name, _TableLoader(), origin=__file__, is_package=True)

    def find_distributions(self, context: Any = None) -> Iterable[Distribution]:
        wanted = context is not None and context.name == "vllm"
        return [_StandInDistribution()] if wanted else []


class _TableLoader(Loader):
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__

        def attribute(wanted: str) -> Any:
            return _lookup(name, wanted)

        module.__getattr__ = attribute  # type: ignore[method-assign]
        module.__doc__ = f"{name} as jax-engine has it: see jax_engine.compat.vllm."
        if name == "vllm":
            module.__version__ = VERSION  # type: ignore[attr-defined]


class _StandInDistribution(Distribution):
    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n"

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"the stand-in for vLLM has no file {path}")


def _lookup(module: str, name: str) -> Any:
    found = where(f"{module}.{name}")
    if found is not None:
        return getattr(import_module(found[0]), found[1])
    if name.startswith("__"):
        raise AttributeError(name)
    if is_module(f"{module}.{name}"):
        return import_module(f"{module}.{name}")
    raise AttributeError(explanation(f"{module}.{name}"))


def install(*, replace: bool = False) -> bool:
    """Puts the stand-in under the name `vllm`; again does nothing.

    Args:
        replace: Also where vLLM itself is installed, or even imported; what a program has already
            taken from it stays.

    Returns:
        Whether `import vllm` now gives the stand-in.
    """
    if any(isinstance(one, _Finder) for one in sys.meta_path):
        return True
    if not replace and importlib.util.find_spec("vllm") is not None:
        return False
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
    return True


def uninstall() -> None:
    """Takes the stand-in away again, with the modules that it made."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, _Finder)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        if isinstance(getattr(sys.modules[name], "__loader__", None), _TableLoader):
            del sys.modules[name]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return VERSION
    return _lookup("vllm", name)


def run_program() -> None:
    """Runs the program that the command line names, as if it had been started by itself."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m jax_engine.compat.vllm PROGRAM [ARGUMENT ..]")
    if sys.argv[1:3] == ["-m", SERVER]:
        raise SystemExit(import_module("jax_engine.cli").main(["serve", *sys.argv[3:]]))
    install(replace=True)
    del sys.argv[0]
    program = sys.argv[0]
    sys.path.insert(0, str(Path(program).resolve().parent))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    from jax_engine.compat.vllm import run_program as run_imported  # not this second copy of it

    run_imported()
elif not install():
    warnings.warn(
        "vLLM itself is installed, so `import vllm` still gives that; "
        "jax_engine.compat.vllm.install(replace=True) puts jax-engine in its place",
        stacklevel=2,
    )
