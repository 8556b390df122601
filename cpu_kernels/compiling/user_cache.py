"""The user's cache folder."""

import os
from pathlib import Path


def user_cache() -> Path:
    """$XDG_CACHE_HOME or ~/.cache; a path that cannot be written if the user has no home."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen)
    home = os.path.expanduser("~")
    return Path(os.devnull if home == "~" else home, ".cache")
