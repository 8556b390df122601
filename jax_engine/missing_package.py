"""Optional packages: imported when they are needed, with an error that says how to install them."""

from importlib import import_module

from jax_engine.errors import MissingPackageError


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
