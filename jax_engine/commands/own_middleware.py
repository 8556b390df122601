"""`--middleware`: ASGI middleware of the user's own, found by the path that it is imported by."""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any, cast

from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware

from jax_engine.errors import ConfigError


def load_middleware(paths: Sequence[str]) -> tuple[Middleware, ...]:
    """Imports them, in this order. Importing a module runs it.

    Args:
        paths: Each names a class, or an async function of a request and of what answers it, such as
            `my_package.my_module.MyClass`.

    Raises:
        ConfigError: A path names nothing, or something else, or its module cannot be imported.
    """
    return tuple(map(_loaded, paths))


def _loaded(path: str) -> Middleware:
    module, _, name = path.rpartition(".")
    if not module or not name:
        raise ConfigError(f"--middleware must be MODULE.NAME, got {path!r}")
    try:
        found = getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ConfigError(f"--middleware {path}: module {module} has no {name}") from error
    except Exception as error:
        raise ConfigError(f"--middleware {path} cannot be imported: {error!r}") from error
    if inspect.isclass(found):
        return Middleware(cast(Any, found))
    if inspect.iscoroutinefunction(found):
        return Middleware(BaseHTTPMiddleware, dispatch=found)
    kind = type(found).__name__
    raise ConfigError(f"--middleware {path} must be a class or an async function, got a {kind}")
