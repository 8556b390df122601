"""Bugs in what a driver and the process of a runner say to each other."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/processes/test_runner_server.py",)
# The bug is in a file then, and only these tests are run.
ENDS = ("--maxfail=1", "tests/processes/test_ends_of_runners.py")
AT_ANY_CALL, DIFFERENT = (*ENDS, "-kat_any_call"), (*ENDS, "-kdifferent_steps")
WAITS, STARTS, IDLE = (*ENDS, "-kcomputes"), (*ENDS, "-kstopped_before"), (*ENDS, "-kidle")

MUTANTS: list[Mutant] = [
    *plant("jax_engine/processes/runner_process.py", TESTS,
        ("again = StepFailedError", "raise StepFailedError", "an odd error ends the process"),
    ),
    *plant("jax_engine/processes/runner_child.py", IDLE,
        ("for child, folder in self._processes:",
         "for child, folder in list[tuple[Child, str]]():",
         "the end of one is told before that of the others"),
    ),
    *plant("jax_engine/processes/runner_child.py", STARTS,
        (" or is_stopped(self.child.pid)", "", "one that is stopped has a minute to start"),
    ),
    *plant("jax_engine/processes/child_process.py", TESTS,
        ("time.process_time() - time.thread_time()", "time.monotonic()",
         "who waits is seen to compute"),
    ),
]  # fmt: skip
