"""Searches of other projects' managers, caches, schedulers and detokenizers for bugs.

    python -m benchmarks conformance --sources FOLDER --only nano-vllm --save

FOLDER has bare clones of the repositories, `nano-vllm.git` and `mini-sglang.git`; wheels are
fetched. With --save the records of benchmarks/results/conformance/ are written anew for what was
searched. One runs after the other: what shares its cores tries fewer examples.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.conformance.records import Entry, keep, of_report
from benchmarks.conformance.targets import ADAPTERS, Target, chosen
from benchmarks.registry import Benchmark, Figures, flag, positive
from benchmarks.report import ROOT


def run(args: argparse.Namespace) -> Iterator[Figures]:
    for target in chosen(args.only):
        entries = searched(target, args)
        if args.save:
            keep(entries)
        yield {str(target): {_name(entry): _figures(entry) for entry in entries}}


def searched(target: Target, args: argparse.Namespace) -> list[Entry]:
    """The entries of one target.

    Raises:
        SystemExit: The command could not run it, or the suite itself failed.
    """
    source = None if target.source is None else target.source.fetched(args.sources.absolute())
    seconds = args.seconds or target.seconds
    busy = os.getloadavg()[2]
    report = reported(target, source, str(args.python or sys.executable), seconds, args.seed)
    busy = (busy + os.getloadavg()[2]) / 2
    only = f"the properties `{target.only}`" if target.only else "all properties"
    how = f"{ADAPTERS}.{target.adapter}, {only}, seed {args.seed}, {seconds:g} s asked for; "
    how += f"{os.cpu_count()} cores with a load of {busy:.1f}"
    version = {"project": target.project, "version": target.version}
    entries = of_report(report, how=how, bugs=target.bugs, **version)
    more: Entry = {"date": datetime.now(UTC).strftime("%Y-%m-%d")}
    if source is not None:  # ours has no version that stays, so its searches are not added up
        more["seeds"] = [args.seed]
    return [entry | more for entry in entries]


def reported(
    target: Target, source: Path | None, python: str, seconds: float, seed: int
) -> dict[str, Any]:
    """What the command says of one target."""
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "report.json"
        command = [python, "-m", "paged_conformance", target.kind, f"{ADAPTERS}.{target.adapter}"]
        command += ["--seconds", str(seconds), "--seed", str(seed), "--report", str(file)]
        command += ["--failures", temporary, *(["--only", target.only] if target.only else [])]
        environment = dict(os.environ) | ({"PYTHONPATH": str(source)} if source else {})
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{target}: paged-conformance ended with {done.returncode}")
        report: dict[str, Any] = json.loads(file.read_text("utf-8"))
    if any(one["status"] == "error" for one in report["properties"]):
        raise SystemExit(f"{target}: the suite itself failed:\n{done.stdout}")
    return report


def _name(entry: Entry) -> str:
    return str(entry["property"]) if entry["found"] else "no alarm"


def _figures(entry: Entry) -> Figures:
    return {"examples": entry["examples"], "search_s": entry["seconds"]}


def files(args: argparse.Namespace, figures: Figures) -> dict[str, Figures]:
    """The records are what is saved; a folder that is named gets the figures."""
    return {} if args.save else {"conformance": figures}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--only", action="append", default=[], metavar="WORDS", help="targets with these"),
        flag("--sources", type=Path, default=Path("conformance-sources"), help="of the projects"),
        flag("--python", type=Path, help="one with PyTorch, msgspec, tokenizers, transformers"),
        flag("--seconds", type=positive(float), help="for each target"),
        flag("--seed", type=int, default=1),
    ),
    smoke={"only": ["block-manager jax-engine oracle"], "seconds": 5.0},
    files=files,
)
