"""Bugs in what a driver and the process of a runner say to each other."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/processes/test_runner_server.py",)
# The bug is in a file then, and only these tests are run.
ENDS = ("--maxfail=1", "tests/processes/test_ends_of_runners.py")
AT_ANY_CALL, DIFFERENT = (*ENDS, "-kat_any_call"), (*ENDS, "-kdifferent_steps")
WAITS, STARTS, IDLE = (*ENDS, "-kcomputes"), (*ENDS, "-kstopped_before"), (*ENDS, "-kidle")

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/processes/runner_process.py",
        TESTS,
        ("if self._error is None:", "if True:", "calls behind a failed one are carried out"),
        ('if call.method == "recover":', "if False:", "no runner recovers"),
        ("self._tickets.pop(number, None)", "pass", "what the driver has forgotten is kept"),
        (
            "if call.waits:\n                    self._send",
            "if True:\n                    self._send",
            "each step is answered, too",
        ),
        ("again = StepFailedError", "raise StepFailedError", "an odd error ends the process"),
    ),
    *plant(
        "jax_engine/processes/runner_client.py",
        TESTS,
        ("if answer.number != number:", "if False:", "an answer of before is taken for this one"),
        (
            "answer.failed and answer.number >= self._recovered",
            "answer.failed",
            "an error of before is raised behind recover",
        ),
    ),
    *plant(
        "jax_engine/processes/runner_process.py",
        TESTS,
        ("elif is_compiling():", "elif False:", "a long compilation is a hang"),
        ("elif is_active:", "elif False:", "a call that computes does nothing"),
        ("ran if is_step else None", "ran", "a long compilation ahead is a step that hangs"),
    ),
    *plant(
        "jax_engine/processes/runner_client.py",
        DIFFERENT,
        ("if digest != digests[0]:", "if False:", "different steps are carried out"),
        (
            "                memory.reset()",
            "                pass",
            "processes that have recovered wait for none of the others",
        ),
    ),
    *plant(
        "jax_engine/processes/runner_client.py",
        AT_ANY_CALL,
        (
            "            self._abort()\n            raise",
            "            raise",
            "others wait for ever for one that has failed",
        ),
    ),
    *plant(
        "jax_engine/processes/runner_child.py",
        IDLE,
        (
            "for child, folder in self._processes:",
            "for child, folder in list[tuple[Child, str]]():",
            "the end of one is told before that of the others",
        ),
    ),
    *plant(
        "jax_engine/processes/runner_child.py",
        WAITS,
        ("min(known, default=0.0)", "max(known, default=0.0)", "who waits for another is stuck"),
    ),
    *plant(
        "jax_engine/processes/runner_child.py",
        STARTS,
        (" or is_stopped(self.child.pid)", "", "one that is stopped has a minute to start"),
    ),
    *plant(
        "jax_engine/processes/child_process.py",
        TESTS,
        ("time.process_time() - time.thread_time()", "0.0", "nobody is seen to compute"),
        (
            "time.process_time() - time.thread_time()",
            "time.monotonic()",
            "who waits is seen to compute",
        ),
    ),
    *plant(
        "jax_engine/processes/placement.py",
        ("tests/processes/test_cores.py",),
        ("every.count(core) > 1", "False", "two ranks have one core"),
        ("if len(found) != count:", "if False:", "ranks have the cores of others, or none"),
        ("core not in own or ", "", "a core is not there"),
        ("if len(cores) < count:", "if False:", "with few cores some ranks have none"),
        ("value == AUTO and count == 1", "False", "a process that is alone is bound"),
        ("+ 1)\n    return found", ")\n    return found", "the last core of a range is left out"),
    ),
]
