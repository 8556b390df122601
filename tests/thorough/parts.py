"""The parts of a round: which tests, with how many examples, and the command that runs them."""

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from random import Random

KERNELS = ("block_copy", "borders", "cpu_kernel", "draw", "gated_linear", "invariants", "kv_write",
           "linear", "merge", "mosaic", "mosaic_plans", "numba", "paged_attention", "parts",
           "rms_norm", "triton", "xla", "zeros")  # fmt: skip


@dataclass(frozen=True)
class Part:
    """
    Attributes:
        tests: Paths, as pytest takes them.
        examples: Of each property at most (`max_examples`).
        once: The first round is enough, since nothing is drawn.
    """

    name: str
    tests: tuple[str, ...]
    examples: int = 1000
    once: bool = False

    def command(self, seed: int, *options: str) -> list[str]:
        """pytest and its arguments, without the interpreter's path."""
        return ["-m", "pytest", "-q", "-x", *self.tests, f"--hypothesis-seed={seed}", *options]

    def environment(self, seed: int) -> dict[str, str]:
        """The variables that, with the command, repeat a part."""
        return {
            "HYPOTHESIS_PROFILE": "rounds",
            "ROUNDS_EXAMPLES": str(self.examples),
            "KERNELS_SEED": str(seed),
            "SIMULATION_SEED": str(seed),
        }

    def repeated(self, seed: int) -> str:
        """The line for a shell that runs this part again with the same examples."""
        variables = [f"{name}={value}" for name, value in self.environment(seed).items()]
        return f"{' '.join(variables)} python {shlex.join(self.command(seed))}"


SIMULATION = "tests/simulation/test_simulation.py"
PARTS = (
    Part("simulation", (f"{SIMULATION}::test_nothing_goes_wrong_in_fresh_simulations",)),
    Part("tiny simulation", (f"{SIMULATION}::test_nothing_goes_wrong_with_the_real_worker",)),
    Part(
        "core",
        (
            "tests/properties/test_block_manager_pair.py",
            "tests/properties/test_scheduler_pair.py",
            "tests/properties/test_overlap.py",
            "tests/core",
        ),
        examples=400,
    ),
    Part(
        "engine",
        (
            "tests/properties/test_engine_shell.py",
            "tests/properties/test_engine_against_reference.py",
            "tests/properties/test_engine_aborts.py",
            "tests/properties/test_client_view.py",
            "tests/properties/test_mixture_machine.py",
            "tests/properties/test_nothing_to_draw.py",
        ),
        examples=100,
    ),
    Part("reference", ("tests/reference",), examples=300),
    Part(
        "sampling and text",
        (
            "tests/sampling",
            "tests/tokenization",
            "tests/engine/test_chat.py",
            "tests/engine/test_parameters_pair.py",
            "tests/engine/test_through_bytes.py",
            "tests/engine/test_sequence_text.py",
            "tests/mutation/test_sampler_by_hand.py",
        ),
        examples=300,
    ),
    Part(
        "API",
        (
            "tests/engine/test_fuzz_api.py",
            "tests/engine/test_llm_engine.py",
            "tests/engine/test_beam_search.py",
            "tests/engine/test_failed_steps.py",
            "tests/engine/test_guided.py",
            "tests/engine/test_parts.py",
            "tests/engine/test_prompt_states.py",
            "tests/engine/test_reset_running.py",
            "tests/engine/test_streaming.py",
            "tests/models/test_decoder.py",
            "tests/models/test_fuzz_files.py",
            "tests/worker/test_step_plan.py",
        ),
        examples=200,
    ),
    Part("kernels", tuple(f"tests/kernels/test_{name}.py" for name in KERNELS), examples=2000),
    Part("small scopes", ("tests/simulation/test_small_scopes.py",), once=True),
)


def seed_of(part: Part, number: int, run_seed: int) -> int:
    """A part's own seed in a round of a run."""
    return Random(f"{run_seed} {number} {part.name}").randrange(2**32)


def variables_for(part: Part, seed: int, root: Path) -> dict[str, str]:
    """The whole environment of a part's process."""
    return os.environ | part.environment(seed) | {"PYTHONPATH": str(root)}
