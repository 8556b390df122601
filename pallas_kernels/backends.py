"""Which implementation of an operation runs."""

BACKENDS = ("xla",)


def resolve_backend(backend: str | None) -> str:
    """The backend to use: the one named, or the best that exists when None.

    Raises:
        ValueError: no such backend.
    """
    if backend is None:
        return "xla"
    if backend not in BACKENDS:
        raise ValueError(
            f"{backend=} does not exist; use one of {', '.join(BACKENDS)}, or None to let the "
            "device decide"
        )
    return backend
