"""Counts what a reader must open: the files and functions that three scenes go through.

    python -m scripts.way                     the counts of all scenes
    python -m scripts.way decode --verbose    the functions of one scene, file by file

Each scene runs on a tiny model of two layers:

    decode  one turn of `LLM`'s loop in the middle of a warm, greedy request
    chat    one streamed chat of a warm server, from the HTTP request to its last event, with the
            engine on a thread of this process
    gptq    a GPTQ checkpoint is loaded, and one of its matrices is multiplied with two tokens

A function is on the way if Python enters it, in any thread. What only `jax.jit` traces is not on
the way of a warm scene; it is on that of `gptq`, which compiles. What Numba compiles is never
entered by Python, nor counted. Kernels that an earlier process has compiled are only loaded: run
`gptq` twice on a new machine. A clock that a server reads twice a second in any case is left out.

Lines of functions count from `def` to the end, without blank lines and docstrings. A lambda or a
function within another counts as lines of the outer one, once.

Types are the classes in the annotations of these functions (`scripts/annotated.py`).
"""

import argparse
import ast
import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, SimpleNamespace
from typing import Any, NamedTuple

from scripts.annotated import ROOT, Function, tree_of, types_of

FOLLOWED = ("jax_engine", "cpu_kernels")
TOOL = 4  # of the numbers that no kind of tool has for its own
TURN = "EngineLoop.turn"
IDLE = {"ActiveTime.tick"}


class Way:
    """The functions of the followed packages that were entered: (file, qualified name, line)."""

    def __init__(self) -> None:
        self.entered: set[tuple[str, str, int]] = set()

    @contextmanager
    def recording(self, turn: int | None = None) -> Iterator[None]:
        """Inside, notes what is entered; with `turn`, only in that turn of the engine's loop."""
        turns = 0

        def starts(code: CodeType, _: int) -> object:
            nonlocal turns
            file = _followed(code.co_filename)
            if file is None:
                return sys.monitoring.DISABLE
            turns += code.co_qualname == TURN
            if turn is None or turns == turn:
                self.entered.add((file, code.co_qualname, code.co_firstlineno))
            return None

        event = sys.monitoring.events.PY_START
        sys.monitoring.use_tool_id(TOOL, "way")
        sys.monitoring.register_callback(TOOL, event, starts)
        sys.monitoring.set_events(TOOL, event)
        sys.monitoring.restart_events()
        try:
            yield
        finally:
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.register_callback(TOOL, event, None)
            sys.monitoring.free_tool_id(TOOL)

    def functions(self) -> dict[str, dict[str, Function]]:
        """By file and by qualified name; what is inside of another has the other's name."""
        found: dict[str, dict[str, Function]] = {}
        for file, name, line in sorted(self.entered):
            known = _functions(file)
            while name and name not in known:  # a lambda, a comprehension, a decorated one
                name = name.rpartition(".<locals>.")[0]
            if name and name not in IDLE:
                its = [one for one in known[name] if _first(one) <= line <= (one.end_lineno or 0)]
                found.setdefault(file, {})[name] = (its or known[name])[-1]
        return found


class Counts(NamedTuple):
    """What a scene's reader must open.

    Attributes:
        lines: Lines of the functions.
        types: The files of the types, with the names of the classes.
        new_types: How many of these files have no function on the way.
    """

    files: int
    functions: int
    lines: int
    types: dict[str, set[str]]
    new_types: int


def count(functions: dict[str, dict[str, Function]]) -> Counts:
    """Counts the functions of a way, and the types in their annotations."""
    lines, types = 0, dict[str, set[str]]()
    for file, its in functions.items():
        lines += len(set().union(*(_lines(file, one) for one in its.values())))
        for one in its.values():
            for where, what in types_of(file, one):
                types.setdefault(where, set()).add(what)
    number = sum(map(len, functions.values()))
    return Counts(len(functions), number, lines, types, len(types.keys() - functions.keys()))


def decode(folder: Path, way: Way) -> None:
    """One turn of the loop: a step is launched, and the tokens of the one before are read."""
    from jax_engine import LLM, SamplingParams
    from tests.support.tiny_llama import tiny_llama

    model, _ = tiny_llama(folder / "tiny")
    llm = LLM(str(model), skip_tokenizer_init=True, block_size=16, num_gpu_blocks_override=9,
              max_model_len=32, max_num_seqs=2)  # fmt: skip
    params = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
    llm.generate([[5, 6]], params, use_tqdm=False)
    with way.recording(turn=4):
        llm.generate([[5, 6]], params, use_tqdm=False)


def chat(folder: Path, way: Way) -> None:
    """A client's second chat, of another text."""
    import pytest
    from starlette.testclient import TestClient

    from jax_engine import AsyncLLM
    from jax_engine.serving.api.app import make_app
    from jax_engine.serving.api.service import ServerSettings, Service
    from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
    from tests.support.engine_in_thread import in_threads
    from tests.support.tiny_llama import tiny_llama

    model, _ = tiny_llama(folder / "bytes", vocab_size=VOCAB)
    save_byte_tokenizer(model)

    def ask(client: TestClient, text: str) -> None:
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "stream": True}
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200 and answer.text.endswith("data: [DONE]\n\n"), answer.text

    with pytest.MonkeyPatch.context() as patch:
        in_threads(patch)
        llm = AsyncLLM(str(model), block_size=16, num_gpu_blocks_override=9, max_model_len=64,
                       max_num_seqs=2)  # fmt: skip
        try:
            app = make_app(Service(llm, ServerSettings(names=("tiny",))))
            with TestClient(app, raise_server_exceptions=False) as client:
                ask(client, "how do you do")
                with way.recording():
                    ask(client, "who are you")
        finally:
            llm.shutdown()


def gptq(folder: Path, way: Way) -> None:
    """From the files to the product of the last matrix of the second layer."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    from jax_engine.models.model_loader import load_model
    from tests.support.quantised_llama import quantised_llama

    model, _ = quantised_llama(folder / "gptq", "gptq")
    with way.recording():
        loaded = load_model(str(model))

        @jax.jit
        def product(params: Any, x: Any) -> Any:
            down = nnx.merge(loaded.graphdef, params).groups[0].places[0].mlp.down
            return down(x, SimpleNamespace(num_tokens=jnp.int32(2), adapters=None), jnp.int32(1))

        product(loaded.params, jnp.ones((2, 64), jnp.float32)).block_until_ready()


SCENES: dict[str, Callable[[Path, Way], None]] = {one.__name__: one for one in (decode, chat, gptq)}


def _followed(filename: str) -> str | None:
    """The file's path in the repository; None where it is in none of the packages."""
    path = filename.removeprefix(f"{ROOT}/")
    return path if path != filename and path.startswith(FOLLOWED) else None


@functools.cache
def _functions(file: str) -> dict[str, list[Function]]:
    """A module's functions by qualified name; a property and its setter have the same."""
    found: dict[str, list[Function]] = {}

    def look(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(prefix + child.name, []).append(child)
                inside += f"{child.name}.<locals>."
            elif isinstance(child, ast.ClassDef):
                inside += f"{child.name}."
            look(child, inside)

    look(tree_of(file), "")
    return found


def _first(function: Function) -> int:
    return min([function.lineno, *(one.lineno for one in function.decorator_list)])


def _lines(file: str, function: Function) -> set[int]:
    """The numbers of its lines that are neither blank nor of a docstring."""
    text = (ROOT / file).read_text("utf-8").splitlines()
    numbers = set(range(function.lineno, (function.end_lineno or 0) + 1))
    for node in ast.walk(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            numbers -= set(range(said.lineno, (said.end_lineno or 0) + 1))
    return {number for number in numbers if text[number - 1].strip()}


def walk(scene: str) -> dict[str, dict[str, Function]]:
    """Runs a scene; returns the functions on its way, by file and name."""
    way = Way()
    with tempfile.TemporaryDirectory() as folder:
        SCENES[scene](Path(folder), way)
    return way.functions()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.way")
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help="decode, chat, gptq; or all")
    parser.add_argument("--verbose", action="store_true", help="name the functions and types")
    options = parser.parse_args()
    if unknown := set(options.scenes) - SCENES.keys():
        parser.error(f"no scene {', '.join(sorted(unknown))}: there are {', '.join(SCENES)}")
    scenes = options.scenes or list(SCENES)
    if len(scenes) == 1:
        _show(scenes[0], verbose=options.verbose)
        return
    more = ["--verbose"] if options.verbose else []
    for scene in scenes:  # each in a process of its own: what one has cached, another would skip
        subprocess.run([sys.executable, "-m", "scripts.way", scene, *more], cwd=ROOT, check=True)


def _show(scene: str, *, verbose: bool) -> None:
    functions = walk(scene)
    counts = count(functions)
    print(
        f"{scene}: {counts.files} files, {counts.functions} functions, {counts.lines} lines; "
        f"types in {len(counts.types)} files, {counts.new_types} of them without a function"
    )
    if not verbose:
        return
    for file, its in functions.items():
        print(f"  {file}")
        for name, one in its.items():
            print(f"    {len(_lines(file, one)):4d}  {name}:{one.lineno}")
    for file, classes in sorted(counts.types.items()):
        print(f"  types in {file}: {', '.join(sorted(classes))}")


if __name__ == "__main__":
    main()
