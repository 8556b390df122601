"""Packages that only some runs need: imported where they are used, and asked for in words."""

from importlib import import_module

from jax_engine.errors import MissingPackageError


def need(package: str, what: str) -> None:
    """Call before the first import of a package that only some runs need.

    Args:
        what: What it is needed for, as the beginning of a sentence.

    Raises:
        MissingPackageError: The package is not there, or cannot be imported here.
    """
    try:
        import_module(package)
    except ImportError as error:
        raise MissingPackageError(
            f"{what} needs the package {package}, which cannot be imported ({error}). Install it: "
            f"pip install {package}"
        ) from error
