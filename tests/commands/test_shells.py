"""What shells complete: bash, zsh and fish do it here, where they are installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from jax_engine.cli import COMMANDS
from tests.commands.conftest import Run

ASK = """\
{before}
source {script}
{behind}
COMP_WORDS=({words})
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_jax_engine
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
BEFORE = {"bash": "", "zsh": "autoload -U compinit; compinit -u -D"}
BEHIND = {"bash": "complete -p jax-engine >&2", "zsh": "emulate sh; COMPREPLY=()"}


@pytest.mark.parametrize("shell", ["bash", "zsh"])
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
        ("completion bash z", []),
        ("nonsense --", ["--help", "--version"]),
        ("nonsense se", []),
        ("complete serve --por", []),
        ("serve --tokenizer chat --sys", []),
        ("bench nonsense thr", []),
        ("bench serve --num-p", ["--num-prompts"]),
        ("quantize bench serve --num-p", []),
    ],
)
def test_bash_and_zsh(
    tmp_path: Path, run: Run, shell: str, words: str, expected: list[str]
) -> None:
    """The function is called as bash, and zsh's `bashcompinit`, call it."""
    script = tmp_path / "completion"
    script.write_text(run("completion", shell).out)
    code = ASK.format(
        before=BEFORE[shell], behind=BEHIND[shell], script=script, words=f"jax-engine {words}"
    )
    done = answer([shell, *(["-f"] if shell == "zsh" else []), "-c", code])
    found = done.stdout.split()
    if shell == "zsh":  # which itself leaves out what does not begin as the word does
        found = [one for one in found if one.startswith(words.split()[-1].strip("'="))]
    assert sorted(found) == sorted(expected)
    if shell == "bash":
        assert "-F _jax_engine jax-engine" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", [*COMMANDS, "run-batch"]),
        ("se", ["serve"]),
        ("serve --po", ["--pooler-config", "--port"]),
        ("serve ./model --dtype b", ["bfloat16"]),
        ("completion z", ["zsh"]),
        ("completion bash z", []),
        ("--he", ["--help"]),
        ("chat serve --por", []),
        ("complete serve --por", []),
        ("serve --tokenizer chat --sys", []),
        ("bench thr", ["throughput"]),
        ("bench nonsense thr", []),
        ("bench serve --num-p", ["--num-prompts"]),
        ("quantize bench serve --num-p", []),
    ],
)
def test_fish(tmp_path: Path, run: Run, words: str, expected: list[str]) -> None:
    script = tmp_path / "completion.fish"
    script.write_text(run("completion", "fish").out)
    done = answer(
        ["fish", "--no-config", "-c", f"source {script}; complete -C 'jax-engine {words}'"]
    )
    assert sorted(line.split("\t")[0] for line in done.stdout.splitlines()) == sorted(expected)


def answer(command: list[str]) -> "subprocess.CompletedProcess[str]":
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "_jax_engine:" not in done.stderr  # zsh goes on behind an error
    return done


def test_lines_of_fish(run: Run) -> None:
    functions, found, rest = run("completion", "fish").out.rpartition("\nend\n")
    assert found and functions.count("function __jax_engine_") == 2
    lines = rest.splitlines()
    assert all(line.startswith("complete -c jax-engine -") for line in lines)
    assert all(line.count("'") % 2 == 0 for line in (one.replace("\\'", "") for one in lines))
    dtype = next(one for one in lines if "_at serve'" in one and "-l dtype" in one)
    assert "-xa 'auto float32 float bfloat16 float16 half'" in dtype
    assert run("completion", "tcsh").status == 2
