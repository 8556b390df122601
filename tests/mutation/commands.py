"""Bugs in the command line."""

from tests.mutation.planting import Mutant, plant

FLAG_TESTS = ("tests/commands/test_flags.py",)
FILE_TESTS = ("tests/commands/test_generate.py",)
ANSWER_TESTS = ("tests/commands/test_answers.py",)
DOCTOR_TESTS = ("tests/commands/test_doctor.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/cli.py",
        FLAG_TESTS,
        (
            "if value is not None and not given & set(flags[name].option_strings):",
            "if value is not None:",
            "a file adds a key to those of the command line",
        ),
        ("yaml.safe_load", "yaml.unsafe_load", "a file of settings runs code"),
        (
            'given.add("--model")',
            "pass",
            "a file's model contradicts the one of the command line",
        ),
    ),
    *plant(
        "jax_engine/commands/batch_file.py",
        FILE_TESTS,
        ("if first != number:", "if False:", "two requests share a custom id"),
        ("{**self._defaults, **found}", "{**found, **self._defaults}", "flags replace fields"),
        ("self._skip_rest()\n", "pass\n", "the rest of a long line is read as lines"),
    ),
    *plant(
        "jax_engine/commands/answers.py",
        ANSWER_TESTS,
        ('removeprefix(" ")', "lstrip()", "an event's text loses its indent"),
        ("elif not line and data:", "elif not line:", "a comment is an event without data"),
    ),
    *plant(
        "jax_engine/commands/diagnosis.py",
        DOCTOR_TESTS,
        ("except Exception as error:", "except OSError as error:", "doctor ends in a traceback"),
    ),
]
