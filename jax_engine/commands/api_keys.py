"""The environment variables that hold a server's key, for the server and for who asks it."""

import os

KEY_VARIABLE = "JAX_ENGINE_API_KEY"
# Who sets vLLM's variable believes that the server asks for a key.
KEY_VARIABLES = (KEY_VARIABLE, "VLLM_API_KEY")
NAMES = " or ".join(KEY_VARIABLES)


def keys_there(*more: str) -> tuple[str, ...]:
    """The keys that variables hold, ours first.

    Args:
        more: names of other variables, for whom the first ones are not set.
    """
    return tuple(filter(None, map(os.environ.get, (*KEY_VARIABLES, *more))))


def client_key(given: str | None, *more: str) -> str | None:
    """The key to be sent: the one that was given, else the first of `keys_there`, if any."""
    return given or next(iter(keys_there(*more)), None)
