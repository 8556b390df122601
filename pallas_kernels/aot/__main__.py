"""Command line: `python -m pallas_kernels.aot --target h200 --target a100`."""

import argparse
import fnmatch
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from pallas_kernels.aot.pool import run_cases
from pallas_kernels.aot.rocm import plugin
from pallas_kernels.aot.table import failed, table
from pallas_kernels.aot.worker import environment

# The modules whose cases are compiled; `--cases` adds others.
KERNELS = "pallas_kernels.aot.cases"
DEFAULT = ("h200", "a100", "mi300x")


def main() -> None:
    """Compiles, prints a table, and exits with 1 if a case spills registers, copies, or fails."""
    # The names of the cases need JAX on the CPU; it must be told before it is imported.
    os.environ.update(environment())
    from pallas_kernels.aot.targets import TARGETS

    options = _options(list(TARGETS))
    options.target = _targets(options.target)
    modules = [importlib.import_module(name) for name in options.cases]
    work = []
    for name in options.target:
        quick = "QUICK_ROCM" if TARGETS[name].platform == "rocm" else "QUICK"
        globs = [glob for module in modules if options.quick for glob in getattr(module, quick, ())]
        found = [c for module in modules for c in module.cases(TARGETS[name])]
        work += [(name, c) for c in found if _chosen(c, options.only + globs, options.skip)]
    if not work:
        sys.exit("no case has such a name; --list prints them")
    if options.list:
        print("\n".join(f"{target}  {case}" for target, case in work))
        return
    outcomes: list[dict[str, Any]] = []
    for outcome in run_cases(work, options.cases, options.jobs):
        outcomes.append(outcome)
        verdict = "FAILED" if failed(outcome) else "not offered" if outcome["refused"] else "ok"
        print(
            f"[{len(outcomes)}/{len(work)}] {outcome['target']} {outcome['case']}: {verdict}",
            file=sys.stderr,
        )
    outcomes.sort(key=lambda o: work.index((o["target"], o["case"])))
    print(table(outcomes))
    if options.json:
        options.json.write_text(json.dumps(outcomes, indent=1) + "\n")
    sys.exit(1 if any(map(failed, outcomes)) else 0)


def _options(targets: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m pallas_kernels.aot", description=__doc__)
    by_default = f"default: {', '.join(DEFAULT)}"
    parser.add_argument("--target", action="append", choices=targets, help=by_default)
    parser.add_argument(
        "--cases",
        action="append",
        default=[KERNELS],
        metavar="MODULE",
        help="a module with more cases: its `cases(target)` gives, by name, functions that build "
        "their programs, and its QUICK and QUICK_ROCM the names of those for --quick",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="GLOB", help="cases to compile"
    )
    parser.add_argument("--quick", action="store_true", help="only those that CI compiles")
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help="and not these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    return parser.parse_args()


def _targets(asked: list[str] | None) -> list[str]:
    """The targets to compile for. Without AMD's compilers theirs is left out by name, or refused.

    Raises:
        SystemExit: this machine lacks compilers for a target that was asked for.
    """
    from pallas_kernels.aot.targets import TARGETS

    lack = plugin.lacking()
    chosen = []
    for name in asked or DEFAULT:
        if TARGETS[name].platform == "cuda" or lack is None:
            chosen.append(name)
        elif asked:
            sys.exit(f"cannot compile for {name}: this machine lacks {lack}")
        else:
            print(f"{name} is left out: this machine lacks {lack}", file=sys.stderr)
    return chosen


def _chosen(case: str, only: list[str], skip: list[str]) -> bool:
    wanted = any(fnmatch.fnmatch(case, glob) for glob in only or ["*"])
    return wanted and not any(fnmatch.fnmatch(case, glob) for glob in skip)


if __name__ == "__main__":
    main()
