"""What every test shares: the CPU as the device, checked shapes, Hypothesis profiles, SmolLM2.

JAX_PLATFORMS, where it is set, says otherwise: `benchmarks.gpu` runs the kernels' tests on a GPU.
The first lines must run before anything imports JAX or the packages under test.
"""

import importlib.util
import os
import secrets
import signal
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Threads for matrices of 20 x 20 only get into each other's way when tests run in parallel.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
# XLA's threads. The interpreter of Mosaic kernels holds one for each warpgroup that waits, and
# on a machine of two cores none would be left for the warpgroup that the others wait for.
os.environ.setdefault("NPROC", "16")

if os.environ["JAX_PLATFORMS"] == "cpu" and (
    "--xla_backend_optimization_level" not in os.environ.get("XLA_FLAGS", "")
):
    # Half the time to compile; matrix products are library calls either way.
    os.environ["XLA_FLAGS"] = (
        os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
    ).strip()

import pytest
from hypothesis import HealthCheck, Phase, settings
from jaxtyping import install_import_hook

from tests.support.memory_maps import MemoryMaps
from tests.support.patience import HANG_S
from tests.support.share import EVERYTHING, Share
from tests.support.sometimes import Sometimes

# Shapes in the annotations of these modules are checked at every call (under jit: at every trace);
# tests/reference/conftest.py has the oracle's.
# The schedulers and block managers hold no arrays and are called too often to be worth it.
# Numba cannot compile a function that is wrapped in a check.
CHECKED_SHAPES = [
    "pallas_kernels",
    "cpu_kernels.attention.paged_attention",
    "jax_engine.layers",
    "jax_engine.models",
    "jax_engine.sampling",
    "jax_engine.weights",
    "jax_engine.worker",
]
# These run elsewhere: where PyTorch is, to make the golden files, and where the clients are.
collect_ignore = [
    "golden/make_hf_goldens.py",
    "golden/make_peft_goldens.py",
    "golden/make_quantised.py",
    "golden/families/make.py",
    "golden/families/make_awkward.py",
    "golden/families/make_encoders.py",
    "golden/families/make_rankings.py",
    "golden/families/make_recent.py",
    "golden/families/make_latent.py",
    "clients",  # of others, in an environment of their own: .ci/clients
]

# A machine that is there for its GPU may lack it; the kernels' tests run there all the same.
SHAPES_ARE_CHECKED = importlib.util.find_spec("beartype") is not None


def check_shapes(modules: list[str]) -> bool:
    """Checks these modules once they are imported. False: the package that checks is not here."""
    if SHAPES_ARE_CHECKED:
        import tests.shapes

        install_import_hook(modules, f"{tests.shapes.__name__}.check_arrays")
    return SHAPES_ARE_CHECKED


check_shapes(CHECKED_SHAPES)

# Wall-clock deadlines mean nothing where one example may compile a function and the next may not.
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "dev",
    max_examples=25,
    stateful_step_count=30,
    deadline=None,
    # Where the variable CI is set, Hypothesis would draw the same examples in each run.
    derandomize=False,
    suppress_health_check=SLOW_IS_FINE,
)
# For what a run has tried already, and tries again in a process with other instructions.
settings.register_profile("few", settings.get_profile("dev"), max_examples=4)
settings.register_profile(
    "ci", settings.get_profile("dev"), max_examples=60, stateful_step_count=40, print_blob=True
)
settings.register_profile(
    "thorough", settings.get_profile("ci"), max_examples=20_000, stateful_step_count=100
)
# What `python -m tests.thorough` uses: each of its parts says how many examples take some minutes.
# Without a database a seed alone repeats a run.
settings.register_profile(
    "rounds",
    settings.get_profile("ci"),
    max_examples=int(os.environ.get("ROUNDS_EXAMPLES", "1000")),
    stateful_step_count=60,
    database=None,
)
# What the mutation check uses: the same examples each time, so that a survivor can be looked at,
# and no shrinking, since a caught bug needs no explanation.
settings.register_profile(
    "mutation",
    settings.get_profile("dev"),
    max_examples=200,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)
# For the thousands of bugs that are made by rule, each of which should take seconds.
settings.register_profile("generated", settings.get_profile("mutation"), max_examples=30)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
# What the few examples of slow kernels are drawn with (tests/kernels/holds.py); inherited by the
# processes that share the tests.
os.environ.setdefault(
    "KERNELS_SEED", "0" if settings.default.derandomize else str(secrets.randbelow(2**24))
)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C; so would the commands that tests interrupt.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [config.getoption(name) for name in ("--share", "--share-seed", "--minutes")]
    config.pluginmanager.register(Share(*chosen))
    config.pluginmanager.register(Sometimes())
    config.pluginmanager.register(MemoryMaps())
    if config.getoption("--counts") is not None:
        from tests.support.counting import Counting

        config.pluginmanager.register(Counting(config.getoption("--counts")))


def pytest_report_header() -> list[str]:
    seed = f"slow kernels' examples: KERNELS_SEED={os.environ['KERNELS_SEED']} repeats them"
    unchecked = "shapes in annotations are not checked: no beartype"
    return [seed] if SHAPES_ARE_CHECKED else [seed, unchecked]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--kernel module:function`: see docs/conformance.md; the others: docs/correctness.md."""
    parser.addoption(
        "--kernel",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="run the kernels' property tests on this paged attention instead of ours",
    )
    parser.addoption(
        "--share",
        type=int,
        choices=range(1, EVERYTHING + 1),
        default=EVERYTHING,
        metavar="PERCENT",
        help="run so many of the cases of each test, and at least one",
    )
    parser.addoption(
        "--share-seed", type=int, default=0, metavar="SEED", help="which cases those are"
    )
    parser.addoption(
        "--minutes",
        type=float,
        metavar="MINUTES",
        help="begin no test after so many; files come in an order that the seed gives",
    )
    parser.addoption(
        "--counts",
        type=Path,
        metavar="FILE",
        help="write how many examples each test ran, as JSON; in one process only",
    )


@pytest.fixture
def patient_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A runner's process that gets no core for a while is not dead."""
    from jax_engine.processes import runner_child

    for name in ("SILENCE_S", "START_S", "STILL_S"):
        monkeypatch.setattr(runner_child, name, HANG_S)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The SmolLM2-135M-Instruct GGUF file, from the cache or downloaded; skips only without it."""
    from jax_engine.errors import ModelNotFoundError
    from jax_engine.models.checkpoints.default_model import default_model_path

    try:
        return default_model_path()
    except ModelNotFoundError as error:
        pytest.skip(f"SmolLM2 is neither cached nor to be had: {error}")
