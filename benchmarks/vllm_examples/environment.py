"""An environment that has this project beside what vLLM's users have: PyTorch, lm-eval."""

import shutil
import subprocess
import sys

from benchmarks.compare.environments import CannotInstall, folder
from benchmarks.report import ROOT

RECIPE = ("torch==2.15.0", "lm_eval==0.4.13")


def interpreter() -> str:
    """Its Python; the environment is made if it is not there yet (6 GB, minutes).

    Raises:
        CannotInstall: pip failed.
    """
    return made("vllm-users", RECIPE, "--editable", str(ROOT))


def made(name: str, recipe: tuple[str, ...], *others: str, python_of: str = sys.executable) -> str:
    """The Python of an environment, which is made unless it has this recipe.

    Args:
        others: Arguments of pip beside the recipe.
        python_of: The interpreter that makes it.

    Raises:
        CannotInstall: There is no such interpreter here, or pip failed.
    """
    place = folder() / name
    python, done = place / "bin" / "python", place / ".installed"
    if not done.exists() or done.read_text() != "\n".join(recipe):
        print(f"installing {', '.join(recipe)}", flush=True)
        if shutil.which(python_of) is None:
            raise CannotInstall(f"{python_of} is not on the PATH")
        _call([python_of, "-m", "venv", "--clear", str(place)])
        _call([str(python), "-m", "pip", "install", "--quiet", *others, *recipe])
        done.write_text("\n".join(recipe))
    return str(python)


def _call(command: list[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip() or "no message").splitlines()[-1]
        raise CannotInstall(f"{' '.join(command[1:])}: {last}")
