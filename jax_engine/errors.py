"""Typed errors: each message gives the field, the value, the limit, and what to do next.

An optional package is imported by `need` when it is needed. If it is missing, the error says how to
install it.
"""

from importlib import import_module


class JaxEngineError(Exception):
    """Base class of all errors that this package raises on purpose."""


class ConfigError(JaxEngineError, ValueError):
    """An engine argument is out of range, or contradicts another one."""


class ModelNotFoundError(JaxEngineError, FileNotFoundError):
    """No model under that path or name, or it could not be downloaded."""


class WeightsError(JaxEngineError, ValueError):
    """Weights are missing, truncated, of the wrong shape, or of an unknown format."""


class MissingPackageError(JaxEngineError, ImportError):
    """The feature needs a package that is not installed; other features run without it."""


class InvalidRequestError(JaxEngineError, ValueError):
    """A prompt or a sampling parameter is not acceptable; nothing was allocated for it."""


class RequestTooLargeError(InvalidRequestError):
    """The request could never finish in this engine (the admission rule); it was not accepted."""


class OutOfMemoryError(JaxEngineError, MemoryError):
    """Memory ran out while loading or in a step, or cannot hold `max_model_len` tokens.

    Attributes:
        fitting: How many tokens it could hold; None: they are not what it is about.
    """

    def __init__(self, message: str = "", *, fitting: int | None = None) -> None:
        super().__init__(message)
        self.fitting = fitting


class StepFailedError(JaxEngineError, RuntimeError):
    """A step failed with this call's requests in it; they were aborted, and the engine goes on.

    `__cause__` is the error of the step.
    """


class ForkedProcessError(JaxEngineError, RuntimeError):
    """The engine was built in another process, from which this one was forked."""


class EngineInUseError(JaxEngineError, RuntimeError):
    """Another thread uses the engine: `LLMEngine` is for one, `LLM` for any number."""


class EngineDeadError(JaxEngineError, RuntimeError):
    """The engine's process or thread has ended, or was shut down."""


def need(package: str, what: str, *, install: str | None = None) -> None:
    """Checks an optional package before its first import.

    Args:
        what: The feature that needs it, as the beginning of a sentence.
        install: What pip calls it, if that is another name.

    Raises:
        MissingPackageError: The package is not installed, or cannot be imported.
    """
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs the package {package}, which cannot be imported ({error}). Install it: "
            f"pip install {install or package}"
        ) from error
