"""The parts of a round: which tests, with how many examples, and the command that runs them."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]

KERNELS = ("block_copy", "borders", "cpu_kernel", "draw", "gated_linear", "kv_write", "linear",
           "merge", "norms", "numba", "parts", "xla", "zeros")  # fmt: skip


@dataclass(frozen=True)
class Part:
    """
    Attributes:
        tests: Paths, as pytest takes them.
        examples: The most examples of each property (`max_examples`).
        once: The first round is enough, since nothing is drawn.
        optimised: XLA compiles as it does for users, which takes longer.
    """

    name: str
    tests: tuple[str, ...]
    examples: int = 1000
    once: bool = False
    optimised: bool = False

    def command(self, seed: int, *options: str) -> list[str]:
        """pytest and its arguments, without the interpreter's path."""
        return ["-m", "pytest", "-q", "-x", *self.tests, f"--hypothesis-seed={seed}", *options]

    def environment(self, seed: int) -> dict[str, str]:
        """The variables that, with the command, repeat a part."""
        variables = {
            "HYPOTHESIS_PROFILE": "rounds",
            "ROUNDS_EXAMPLES": str(self.examples),
            "KERNELS_SEED": str(seed),
            "SIMULATION_SEED": str(seed),
        }
        if self.optimised:
            variables["XLA_FLAGS"] = "--xla_backend_optimization_level=3"
        return variables

    def repeated(self, seed: int) -> str:
        """The line for a shell that runs this part again with the same examples."""
        variables = [f"{name}={value}" for name, value in self.environment(seed).items()]
        return f"{' '.join(variables)} python {shlex.join(self.command(seed))}"


def _files(folder: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names)


def with_random_tests(*folders: str) -> tuple[str, ...]:
    """The files of these folders of `tests/` that draw examples."""
    found = (path for folder in folders for path in (ROOT / "tests" / folder).rglob("test_*.py"))
    draws = (path for path in found if "from hypothesis" in path.read_text("utf-8"))
    return tuple(sorted(path.relative_to(ROOT).as_posix() for path in draws))


def _others(*folders: str) -> tuple[str, ...]:
    """Those of them that no part of `NAMED` has: a new file is in a part by itself."""
    named = tuple(test for part in NAMED for test in part.tests)
    return tuple(file for file in with_random_tests(*folders) if not file.startswith(named))


SIMULATION = "tests/simulation/test_simulation.py::test_nothing_goes_wrong"
NAMED = (
    Part("simulation", (f"{SIMULATION}_in_fresh_simulations",)),
    Part("tiny simulation", (f"{SIMULATION}_with_the_real_worker",)),
    Part(
        "core",
        (*_files("properties", "block_manager_pair", "scheduler_pair", "overlap"), "tests/core"),
        examples=150,
    ),
    # The first three together: what must have happened is asked of a run that has all of them.
    Part(
        "engine",
        _files(
            "properties",
            "engine_shell",
            "engine_against_reference",
            "client_view",
            "mixture_machine",
            "nothing_to_draw",
        ),
        examples=100,
    ),
    Part(
        "equal bits",
        (*_files("properties", "equal_bits"), *_files("models", "equal_bits")),
        examples=150,
        optimised=True,
    ),
    Part(
        "speculation",
        _files("properties", "speculation", "draft_model"),
        examples=60,
        optimised=True,
    ),
    # A process compiles some two hundred programs, which is most of the time of its first hundred
    # crowds. Those that come after find them: so it has many.
    Part(
        "crowds",
        ("tests/properties/test_equal_bits.py::test_i52_the_same_bits_in_a_crowd",),
        examples=2000,
        optimised=True,
    ),
    Part("reference", ("tests/reference",), examples=150),
    Part(
        "sampling and text",
        (
            "tests/sampling",
            "tests/tokenization",
            "tests/mutation/test_sampler_by_hand.py",
            *_files(
                "engine", "chat", "parameters_pair", "through_bytes", "sequence_text", "assembler"
            ),
        ),
        examples=100,
    ),
    Part(
        "API",
        (
            *_files(
                "engine",
                "fuzz_api",
                "llm_engine",
                "beam_search",
                "failed_steps",
                "guided",
                "parts",
                "prompt_states",
                "reset_running",
                "streaming",
            ),
            *_files("models", "decoder", "fuzz_files"),
            *_files("worker", "step_plan"),
        ),
        examples=60,
    ),
    Part("kernels", _files("kernels", *KERNELS), examples=200),
    # Interpreted backends get a share of their own for each thousand (`tests/kernels/holds.py`).
    Part("attention", _files("kernels", "paged_attention", "invariants"), examples=1000),
    Part("GPU kernels", _files("kernels", "mosaic", "mosaic_plans", "triton"), examples=1000),
    Part("small scopes", ("tests/simulation/test_small_scopes.py",), once=True),
)
PARTS = (
    *NAMED,
    Part("other properties", _others("properties"), examples=60),
    Part("other kernels", _others("kernels"), examples=150),
    Part("requests", _others("engine", "guided", "serving"), examples=150),
    Part("files of weights", _others("lora", "models", "weights"), examples=100),
    Part("guesses", _others("speculation"), examples=150),
    Part("processes", _others("kv_store", "parallel", "processes", "ray", "worker"), examples=40),
    Part("pages", _others("docs", "playground"), examples=150),
    Part("conformance", _others("conformance"), examples=30),
)


def seed_of(part: Part, number: int, run_seed: int) -> int:
    """A part's own seed in a round of a run."""
    return Random(f"{run_seed} {number} {part.name}").randrange(2**32)


def variables_for(part: Part, seed: int, root: Path) -> dict[str, str]:
    """The whole environment of a part's process."""
    return os.environ | part.environment(seed) | {"PYTHONPATH": str(root)}
