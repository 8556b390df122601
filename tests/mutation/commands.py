"""Bugs in the command line."""

from tests.mutation.planting import Mutant, plant

FLAG_TESTS = ("tests/commands/test_flags.py",)
FILE_TESTS = ("tests/commands/test_generate.py",)
ANSWER_TESTS = ("tests/commands/test_answers.py",)
DOCTOR_TESTS = ("tests/commands/test_doctor.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/cli.py", FLAG_TESTS,
        ("yaml.safe_load", "yaml.unsafe_load", "a file of settings runs code"),
    ),
    *plant("jax_engine/commands/batch_file.py", FILE_TESTS,
        ("{**self._defaults, **found}", "{**found, **self._defaults}", "flags replace fields"),
    ),
    *plant("jax_engine/commands/answers.py", ANSWER_TESTS,
        ('removeprefix(" ")', "lstrip()", "an event's text loses its indent"),
    ),
    *plant("jax_engine/commands/diagnosis.py", DOCTOR_TESTS,
        ("except Exception as error:", "except OSError as error:", "doctor ends in a traceback"),
    ),
]  # fmt: skip
