"""What a benchmark declares, and what all of them share: flags, smoke runs, progress, saved files.

A benchmark is a module of this package, or the `benchmark.py` of a folder in it, that ends with

    BENCHMARK = Benchmark(run, flags=(flag("--passes", type=int, default=5),), smoke={"passes": 1})

Its name is the module's (`devices`, `adapters.cost`), and the first line of its docstring says what
it measures. `run` gives the figures, or yields them part by part: each part is shown as it comes
and kept at once, so a run that is cut off leaves what it had.
"""

import argparse
import importlib
import json
import re
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.report import RESULTS, write_result

FOLDER = Path(__file__).parent
DECLARES = re.compile(r"^BENCHMARK = ", re.MULTILINE)
FIRST_LINE = re.compile(r'"""(.*?)[.:]?(?: `python -m .*)?("""|\n)')
OWN_FILE = "benchmark"  # a folder's module that declares the benchmark of the folder's name

type Figures = dict[str, Any]


@dataclass(frozen=True)
class Flag:
    """What `argparse` is told of a flag that only this benchmark has."""

    names: tuple[str, ...]
    options: dict[str, Any]


def flag(*names: str, **options: Any) -> Flag:
    """As `ArgumentParser.add_argument` takes it."""
    return Flag(names, options)


def no_headline(args: argparse.Namespace, figures: Figures) -> dict[str, str]:
    return {}


def lines(figures: Figures, name: str = "") -> str:
    """A line for each innermost group of figures."""
    groups = {key: value for key, value in figures.items() if isinstance(value, dict)}
    own = ", ".join(f"{key} {value}" for key, value in figures.items() if key not in groups)
    inner = [lines(value, f"{name}, {key}" if name else key) for key, value in groups.items()]
    return "\n".join([*([f"{name}: {own}" if name else own] if own else []), *inner])


@dataclass(frozen=True)
class Benchmark:
    """A module's declaration.

    Attributes:
        run: Gives the figures. Keys end in their unit (`_s`, `_ms`, `_tokens_per_s`, `_percent`).
        flags: Beside the common ones.
        smoke: Values of flags in a run that only shows that everything fits together; a flag that
            is typed counts more. `args.smoke` tells `run` to take a tiny model.
        needs: What a smoke run needs that is not part of the checkout and cannot be had by a test.
        headline: What the first table of docs/measured.md shows: what was measured, to the figure.
        files: The figures of each file of benchmarks/results/; one of the benchmark's name if left
            out.
        merge: Makes the figures to keep from the file's earlier ones and the new ones; new ones
            replace the file if left out.
        wrong: What is wrong with the figures, which ends the run with an error after all is kept.
        show: A part of the figures for the terminal.
    """

    run: Callable[[argparse.Namespace], Figures | Iterable[Figures]]
    flags: Sequence[Flag] = ()
    smoke: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""
    headline: Callable[[argparse.Namespace, Figures], dict[str, str]] = no_headline
    files: Callable[[argparse.Namespace, Figures], dict[str, Figures]] | None = None
    merge: Callable[[argparse.Namespace, Figures, Figures], Figures] | None = None
    wrong: Callable[[Figures], str] | None = None
    show: Callable[[Figures], str] = lines


def names() -> list[str]:
    """All benchmarks, found in the text of their modules: nothing is imported."""
    return sorted(map(_name, filter(_declares, FOLDER.rglob("*.py"))))


def load(name: str) -> Benchmark:
    """The declaration of a benchmark.

    Raises:
        SystemExit: There is none of this name.
    """
    if name not in names():
        raise SystemExit(f"no benchmark is called {name!r}; known are {', '.join(names())}")
    path = f"benchmarks.{name}"
    found = importlib.import_module(f"{path}.{OWN_FILE}" if _folder(name).is_dir() else path)
    declared: Benchmark = found.BENCHMARK
    return declared


def description(name: str) -> str:
    """The first line of its docstring."""
    file = _folder(name) / f"{OWN_FILE}.py" if _folder(name).is_dir() else _folder(name, ".py")
    found = FIRST_LINE.match(file.read_text("utf-8"))
    assert found is not None
    return found[1]


def listing() -> str:
    """A line for each benchmark."""
    width = max(map(len, names()))
    return "\n".join(f"{name:{width}}  {description(name)}" for name in names())


def parser(name: str, declared: Benchmark) -> argparse.ArgumentParser:
    """The flags of one benchmark."""
    found = argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}", description=description(name)
    )
    for one in declared.flags:
        found.add_argument(*one.names, **one.options)
    common = found.add_argument_group("as every benchmark")
    common.add_argument("--smoke", action="store_true", help="as small as can be, nothing kept")
    common.add_argument("--save", action="store_true", help="keep it in benchmarks/results/")
    common.add_argument("--output", type=Path, metavar="FOLDER", help="keep it there instead")
    return found


def parse(name: str, declared: Benchmark, given: Sequence[str]) -> argparse.Namespace:
    """Flags as they were typed; a smoke run has smaller defaults."""
    own = parser(name, declared)
    if "--smoke" in given:
        own.set_defaults(**declared.smoke)
    args = own.parse_args(given)
    if args.smoke and args.save:
        own.error("--smoke measures nothing that is worth keeping: --output FOLDER if it must be")
    return args


def run(name: str, given: Sequence[str]) -> Figures:
    """One benchmark, with the flags as they were typed; gives all figures.

    Raises:
        SystemExit: What was measured is wrong.
    """
    declared = load(name)
    args = parse(name, declared, given)
    # As Ctrl-C does: a process that is left behind would hold its memory for ever.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    found = declared.run(args)
    figures: Figures = {}
    for part in [found] if isinstance(found, dict) else found:
        figures = _joined(figures, part)
        print(declared.show(part), flush=True)
        _keep(name, declared, args, given, figures)
    for path in _keep(name, declared, args, given, figures, whole=True):
        print(f"wrote {path}")
    if declared.wrong is not None and (said := declared.wrong(figures)):
        raise SystemExit(said)
    return figures


def main(given: Sequence[str] | None = None) -> None:
    """`python -m benchmarks` lists them all, with a name it runs that one."""
    words = sys.argv[1:] if given is None else given
    if not words or words[0] in ("-h", "--help"):
        print("python -m benchmarks NAME [--smoke] [--save] [flags; --help tells them]\n")
        print(listing())
    else:
        run(words[0], words[1:])


def names_of(known: Iterable[str], least: int = 1) -> Callable[[str], list[str]]:
    """A type for argparse: known names with commas between them."""
    all_known = ", ".join(known)

    def parse_names(text: str) -> list[str]:
        found = [name for name in text.split(",") if name]
        if len(found) < least:
            raise argparse.ArgumentTypeError(f"name one at least: {all_known}")
        for name in found:
            if name not in all_known.split(", "):
                raise argparse.ArgumentTypeError(f"{name!r}; known: {all_known}")
        return found

    return parse_names


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type for argparse: a number above 0."""

    def parse_number(text: str) -> Any:
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be more than 0, got {text}")
        return value

    parse_number.__name__ = kind.__name__  # what argparse calls it where the text is no number
    return parse_number


def _declares(file: Path) -> bool:
    return file.stem != "registry" and bool(DECLARES.search(file.read_text("utf-8")))


def _name(file: Path) -> str:
    parts = file.relative_to(FOLDER).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == OWN_FILE else parts)


def _folder(name: str, suffix: str = "") -> Path:
    return FOLDER / f"{name.replace('.', '/')}{suffix}"


def _joined(one: Figures, more: Figures) -> Figures:
    """Both, and so the groups that both have."""
    found = dict(one)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = _joined(found[key], value) if both else value
    return found


def _keep(
    name: str,
    declared: Benchmark,
    args: argparse.Namespace,
    given: Sequence[str],
    figures: Figures,
    *,
    whole: bool = False,
) -> list[Path]:
    """Writes what is known so far, if it is to be kept. Only whole figures have headlines."""
    if not (args.save or args.output):
        return []
    own = {name.replace(".", "_"): figures}
    files = own if declared.files is None else declared.files(args, figures)
    written = []
    for file, some in files.items():
        path = (args.output or RESULTS) / f"{file}.json"
        if declared.merge is not None and path.exists():
            saved = json.loads(path.read_text("utf-8"))["result"]
            some = declared.merge(args, saved, some)
        headline = declared.headline(args, some) if whole else {}
        command, arguments = _command(name, args, given), _arguments(args)
        written.append(
            write_result(file, some, path, arguments=arguments, command=command, headline=headline)
        )
    return written


def _arguments(args: argparse.Namespace) -> dict[str, Any]:
    """All but the common ones, and folders of this machine."""
    common = ("smoke", "save", "output")
    return {
        key: value
        for key, value in vars(args).items()
        if key not in common and not isinstance(value, Path)
    }


def _command(name: str, args: argparse.Namespace, given: Sequence[str]) -> str:
    """As it was typed; a path of this machine is told by its flag's name."""
    paths = {str(v): k.upper() for k, v in vars(args).items() if isinstance(v, Path)}
    return " ".join(["python -m benchmarks", name, *(paths.get(word, word) for word in given)])
