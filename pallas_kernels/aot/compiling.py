"""Compiles one case for one target: records its time, its kernels' resources, and its copies."""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from pallas_kernels.aot.collectives import Collective, find_collectives
from pallas_kernels.aot.hlo import Watched, find_copies, launches_per_turn
from pallas_kernels.aot.ptx import (
    Resources,
    arithmetic,
    find_ptxas,
    mosaic_kernels,
    xla_kernels,
)
from pallas_kernels.aot.rocm import code_objects
from pallas_kernels.aot.targets import Target
from pallas_kernels.aot.thunks import Starts, starts_of

# How names of kernels begin whose order of additions may not depend on the number of rows.
INVARIANT = ("invariant_", "paged_")


@dataclass(frozen=True)
class Program:
    """The program that a case compiles.

    Attributes:
        function: traced with `arguments`.
        arguments: `jax.ShapeDtypeStruct`s, or trees of them.
        donated: positions of the arguments whose memory the results reuse.
        watched: arrays that must not be copied.
        temporary: bytes of temporary memory that are acceptable.
        launches: kernels and copies that are acceptable in one turn of a loop.
        starts: how much one run of the program may start; None: it is not looked at.
        options: compiler options that callers of the function should use.
        placements: `jax.jit`'s options for where arguments and results lie, if several devices run
            the program.
        devices: how many run the program; shapes of arguments are those of all together.
        exchanges: how often they may talk in one run.
        alike: a program for another number of rows. Kernels of `INVARIANT` names must be compiled
            to the same instructions on floats, in the same order, in both.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    donated: tuple[int, ...] = ()
    watched: Watched = field(default_factory=Watched)
    temporary: int = 2**62
    launches: int = 2**62
    starts: Starts | None = None
    options: dict[str, Any] = field(default_factory=dict)
    placements: dict[str, Any] = field(default_factory=dict)
    devices: int = 1
    exchanges: int = 2**62
    alike: "Program | None" = None


@dataclass
class Outcome:
    """The result of compiling a case.

    Attributes:
        case, target: names of the two.
        seconds: time to trace, lower and compile on this machine.
        kernels: all kernels of the program, XLA's own included.
        copies: instructions that copy the cache or a weight.
        arguments: bytes of all arguments on one device.
        temporary, aliased: bytes of temporary memory, and of results stored in arguments.
        collectives: what devices say to each other in one run.
        launches: kernels and copies that one turn of a loop starts, in a model's step one layer.
        starts: what one run starts.
        differing: names of kernels that are other ones for another number of rows, but must not.
        refused: the feature that the backend says it lacks, or empty. To lack one is no failure.
        problems: the reasons why the case fails; empty if it passes.
    """

    case: str
    target: str
    seconds: float = 0.0
    kernels: list[Resources] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    arguments: int = 0
    temporary: int = 0
    aliased: int = 0
    collectives: list[Collective] = field(default_factory=list)
    launches: int = 0
    starts: Starts = field(default_factory=Starts)
    differing: list[str] = field(default_factory=list)
    refused: str = ""
    problems: list[str] = field(default_factory=list)


class Refused(Exception):
    """A program cannot be built because the backend lacks a feature on purpose, and says so."""


def compile_case(case: str, target_name: str, target: Target, build: Callable[[], Program]) -> Any:
    """Compiles one case. A failure to compile is an outcome, not an exception."""
    outcome = Outcome(case, target_name)
    try:
        _compile(outcome, target, build)
    except Refused as refused:
        outcome.refused = str(refused)
    except Exception as error:
        text = str(error).strip().replace("\n", " ")
        outcome.problems.append(f"does not compile: {type(error).__name__}: {text[:400]}")
    return outcome


def _compile(outcome: Outcome, target: Target, build: Callable[[], Program]) -> None:
    with tempfile.TemporaryDirectory() as folder, jax.default_device(target.device()), _quiet():
        dump = Path(folder)
        program = build()
        with _printed(dump / "printed") as printed:
            started = time.perf_counter()
            compiled = _compiled(program, target, dump)
            outcome.seconds = time.perf_counter() - started
        if program.alike is not None:
            outcome.differing = _differing(program.alike, target, dump)
        kernels = _kernels(target, dump, printed)
        text = compiled.as_text()
        outcome.starts = starts_of(dump, text)
    outcome.kernels = kernels
    outcome.copies = find_copies(text, program.watched)
    outcome.launches = launches_per_turn(text)
    outcome.collectives = find_collectives(text)
    memory = compiled.memory_analysis()
    outcome.arguments = memory.argument_size_in_bytes
    outcome.temporary = memory.temp_size_in_bytes
    outcome.aliased = memory.alias_size_in_bytes
    outcome.problems += problems_of(outcome, program)


def _kernels(target: Target, dump: Path, printed: Path) -> list[Resources]:
    if target.platform == "rocm":
        return code_objects.kernels(dump)
    return mosaic_kernels(printed.read_text()) + xla_kernels(dump, find_ptxas())


def _compiled(program: Program, target: Target, dump: Path) -> Any:
    """The program, compiled; XLA writes its kernels into the folder."""
    options = {"xla_dump_to": str(dump), "xla_dump_emitter_re": "ptx", **program.options}
    jitted = jax.jit(
        program.function,
        donate_argnums=program.donated,
        compiler_options=options,
        **program.placements,
    )
    device = target.device()
    placed = program.arguments if program.placements else _place(program.arguments, device)
    with code_objects.kept_in(dump):
        return jitted.trace(*placed).lower(lowering_platforms=(target.platform,)).compile()


def _differing(alike: Program, target: Target, dump: Path) -> list[str]:
    """Names of kernels that are in one of two programs only."""
    with tempfile.TemporaryDirectory() as folder:
        _compiled(alike, target, Path(folder))
        of = code_objects.arithmetic if target.platform == "rocm" else arithmetic
        both = [of(one, INVARIANT) for one in (dump, Path(folder))]
    if not both[0]:
        return ["none found"]
    return sorted({name for name, *_ in both[0] ^ both[1]})


def problems_of(outcome: Outcome, program: Program) -> list[str]:
    """Why a compiled case fails, a line for each reason."""
    problems = [
        f"{kernel.name} spills {kernel.spilled} bytes"
        for kernel in outcome.kernels
        if kernel.spilled
    ]
    problems += [f"copies: {line}" for line in outcome.copies]
    problems += [
        f"{name}: other instructions for another number of rows" for name in outcome.differing
    ]
    if outcome.temporary > program.temporary:
        problems.append(f"{outcome.temporary:,} bytes of temporaries > {program.temporary:,}")
    if outcome.launches > program.launches:
        problems.append(f"a turn of a loop starts {outcome.launches} kernels > {program.launches}")
    exchanges = sum(one.times for one in outcome.collectives)
    if exchanges > program.exchanges:
        problems.append(f"devices talk {exchanges} times > {program.exchanges}")
    if program.starts is not None:
        for what, found, most in zip(Starts._fields, outcome.starts, program.starts, strict=True):
            if found > most:
                problems.append(f"{what} in one run: {found} > {most}")
    donated = sum(
        leaf.size * leaf.dtype.itemsize // program.devices
        for position in program.donated
        for leaf in jax.tree.leaves(program.arguments[position])
    )
    if outcome.aliased < donated:
        problems.append(f"only {outcome.aliased:,} of {donated:,} donated bytes are reused")
    if not outcome.kernels:
        problems.append("no kernel was found in what the compilers dumped")
    return problems


def array(
    shape: tuple[int, ...], dtype: Any = "int32", sharding: Any = None
) -> jax.ShapeDtypeStruct:
    """The shape and dtype of an array to compile for."""
    dtype = jnp.dtype(dtype)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)  # type: ignore[no-untyped-call]


def _place(arguments: tuple[Any, ...], device: Any) -> Any:
    sharding = SingleDeviceSharding(device)
    return jax.tree.map(lambda leaf: array(leaf.shape, leaf.dtype, sharding), arguments)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the warning, at every kernel, that Pallas's Triton backend is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def _printed(file: Path) -> Iterator[Path]:
    """Collects all standard output, that of compiled code included."""
    sys.stdout.flush()
    kept = os.dup(1)
    with file.open("wb") as sink:
        os.dup2(sink.fileno(), 1)
    try:
        yield file
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
