"""What shells complete: bash does it here, zsh and fish get lines to read."""

import shutil
import subprocess
from pathlib import Path

import pytest

from jax_engine.cli import COMMANDS
from tests.commands.conftest import Run

ASK = """\
source {script}
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_jax_engine
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p jax-engine >&2
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("''", [*COMMANDS, "run-batch", "--help", "--version"]),
        ("se", ["serve"]),
        ("serve --po", ["--pooler-config", "--port"]),
        ("serve ./model --dtype b", ["bfloat16"]),
        ("serve --dtype = fl", ["float32", "float", "float16"]),
        ("serve --dtype =", ["auto", "float32", "float", "bfloat16", "float16", "half"]),
        ("run-batch --te", ["--text", "--tensor-parallel-size", "--temperature"]),
        ("chat serve --por", []),
        ("serve --chat-template ''", []),
        ("completion z", ["zsh"]),
        ("nonsense --", ["--help", "--version"]),
    ],
)
def test_bash(tmp_path: Path, run: Run, words: str, expected: list[str]) -> None:
    script = tmp_path / "completion.bash"
    script.write_text(run("completion", "bash").out)
    code = ASK.format(script=script, words=f"jax-engine {words}")
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == sorted(expected)
    assert "-F _jax_engine jax-engine" in done.stderr


def test_zsh_and_fish(run: Run) -> None:
    assert run("completion", "zsh").out.startswith("autoload -U +X bashcompinit")
    lines = run("completion", "fish").out.splitlines()
    assert all(line.startswith("complete -c jax-engine ") for line in lines)
    assert all(line.count("'") % 2 == 0 for line in (one.replace("\\'", "") for one in lines))
    dtype = next(one for one in lines if "from serve'" in one and "-l dtype" in one)
    assert "-xa 'auto float32 float bfloat16 float16 half'" in dtype
    assert run("completion", "tcsh").status == 2
