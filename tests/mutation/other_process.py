"""Bugs in what a driver and the process of a runner say to each other."""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/processes/test_runner_server.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/processes/runner_server.py",
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
        ("if answer.number == number:", "if True:", "an answer of before is taken for this one"),
        (
            "answer.failed and answer.number >= self._recovered",
            "answer.failed",
            "an error of before is raised behind recover",
        ),
    ),
    *plant(
        "jax_engine/processes/runner_process.py",
        TESTS,
        ("elif not is_compiling():", "else:", "a long compilation is a hang"),
    ),
]
