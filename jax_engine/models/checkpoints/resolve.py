"""Finds the files of a model, given a path or a hub name."""

import fnmatch
import glob
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from jax_engine.errors import JaxEngineError, ModelNotFoundError, WeightsError, need
from jax_engine.models.checkpoints.default_model import default_model_path
from jax_engine.models.checkpoints.file_schema import dead_links, short
from jax_engine.models.checkpoints.weight_layouts import (
    CONFIG,
    PARAMS,
    chosen_files,
    files_of,
    is_mistral,
    is_of_macos,
    layout_of,
    left_over,
    read_index,
)

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIG_FILES = (
    *("*.json", "*.model", "*.jinja", "merges.txt", "vocab.txt", "*.tiktoken"),
    "tokenizer.model.v*",  # Mistral's
)
# What is not read: in the hub's patterns a star stands for slashes too.
_UNREAD = ("*/*", "pytorch_model*", "consolidated*", "tf_model*", "flax_model*", "adapter*")
_IN_FOLDERS = ("[0-9]*_*/config.json", "additional_chat_templates/*.jinja")


@dataclass(frozen=True)
class HubOptions:
    """Options of downloads from the hub; names as in `EngineConfig`."""

    revision: str | None = None
    download_dir: str | None = None
    token: str | bool | None = field(default=None, repr=False)


HUB = HubOptions()


def resolve_model(
    model: str | None,
    *,
    config_only: bool = False,
    hub: HubOptions = HUB,
    load_format: str = "auto",
) -> Path:
    """Returns a directory in Hugging Face layout or in Mistral's, or a GGUF file.

    Args:
        model: a path, a hub name ("owner/name"), or None for the default model.
        hub: options for models that are not on this machine.
        config_only: no weights are needed (dummy weights).
        load_format: which weights are fetched of a hub, as in `EngineConfig`.

    Raises:
        ModelNotFoundError: naming every place that was tried.
        MissingPackageError: the default model needs a package; nothing was downloaded.
    """
    if model is None:
        need("gguf", "The default model, a GGUF file,")
        return default_model_path()
    path = Path(model).expanduser()
    if os.path.isfile(path):  # Path.is_file raises for a name that is too long
        return path
    if os.path.isdir(path):
        return _local_directory(path)
    if not _HUB_NAME.fullmatch(model):
        raise ModelNotFoundError(
            f"model {short(model)}: there is no such file or directory "
            f'({path.absolute()}), and it is not a hub name of the form "owner/name" either.'
        )
    return _from_hub(model, path, config_only, hub, load_format)


def _local_directory(path: Path) -> Path:
    ggufs = sorted(one for one in path.glob("*.gguf") if not is_of_macos(one))
    if os.path.exists(path / CONFIG) or (os.path.exists(path / PARAMS) and not ggufs):
        return path
    first = [one for one in ggufs if one.name.endswith(f"-00001-of-{len(ggufs):05}.gguf")]
    if len(ggufs) == 1 or len(first) == 1:  # one file, or all parts of a split one
        return (first or ggufs)[0]
    raise ModelNotFoundError(
        f"model {str(path)!r}: the directory has no config.json and {len(ggufs)} GGUF files"
        f"{_instead(files_of(path, None))}. "
        f"Give a directory in Hugging Face layout, or the path of one GGUF file.{_inner(path)}"
        f"{dead_links([path / 'config.json'])}"
    )


def _inner(path: Path) -> str:
    """The place of a model within a directory, for messages, if there is one."""
    found = [*path.glob("*/config.json"), *path.glob("snapshots/*/config.json")]
    return f" There is one in {found[0].parent}: give that path." if len(found) == 1 else ""


def _instead(names: set[str]) -> str:
    """What a directory or a repository has in place of a model, for messages."""
    others = left_over(names, ())
    return f", only {'; '.join(others)}" if others else ""


def _from_hub(name: str, path: Path, config_only: bool, hub: HubOptions, load_format: str) -> Path:
    """Tries the hub's cache first, so that a cached model needs no network; then downloads."""
    import huggingface_hub  # slow to import, and not needed for local files
    from huggingface_hub.constants import ENDPOINT, HF_HUB_CACHE
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    download = partial(
        huggingface_hub.snapshot_download,
        name,
        revision=hub.revision,
        cache_dir=hub.download_dir,
        token=hub.token,
    )
    cached = None
    try:
        small = {"allow_patterns": list(_CONFIG_FILES), "ignore_patterns": list(_UNREAD)}
        cached = Path(download(local_files_only=True, **small))
        if _is_complete(cached, config_only, load_format):
            return cached
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    try:
        listed = huggingface_hub.HfApi(token=hub.token).model_info(name, revision=hub.revision)
        names = {one.rfilename for one in listed.siblings}
        return _download(name, names, None if config_only else load_format, download)
    except JaxEngineError:
        raise
    except Exception as error:  # the hub client raises many kinds; all mean the same to the user
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if cached is not None:
            raise ModelNotFoundError(
                f"model {name!r}: {cached} lacks config.json or some of its weights. Either the "
                "download was interrupted and there is no network now, or the model has none. "
                f"({type(error).__name__}: {reason})"
            ) from error
        version = f" in revision {hub.revision!r}" if hub.revision else ""
        raise ModelNotFoundError(
            f"model {name!r} was not found{version}. Tried the local path {path.absolute()}, the "
            f"hub cache {hub.download_dir or HF_HUB_CACHE}, and a download from {ENDPOINT} "
            f"({type(error).__name__}: {reason}). "
            "Check the name, or give the path of a directory or a GGUF file."
        ) from error


def _download(
    name: str, listed: set[str], load_format: str | None, download: Callable[..., str]
) -> Path:
    """Fetches what is read, and no more: first the small files, then the weights of their index.

    Args:
        listed: the repository's files.
        load_format: which weights; None: none.

    Raises:
        ModelNotFoundError, WeightsError: it has no configuration or no weights that are read.
    """
    if CONFIG not in listed and not is_mistral(listed):
        raise ModelNotFoundError(f"model {name!r} has no {CONFIG}{_instead(listed)}.")
    small = [one for one in listed if _is_small(one)]
    if load_format is None:
        return Path(download(allow_patterns=list(map(glob.escape, small))))
    layout = layout_of(listed, load_format)
    small += {layout.index} & listed - {*small}
    fetched = Path(download(allow_patterns=list(map(glob.escape, small))))
    weights = chosen_files(listed, read_index(fetched, layout), name, layout)
    return Path(download(allow_patterns=list(map(glob.escape, small + weights))))


def _is_small(name: str) -> bool:
    """Whether a file of a repository is one that is read beside the weights."""

    def is_one_of(kinds: Iterable[str]) -> bool:
        return any(fnmatch.fnmatch(name, kind) for kind in kinds)

    return is_one_of(_IN_FOLDERS) or (is_one_of(_CONFIG_FILES) and not is_one_of(_UNREAD))


def _is_complete(snapshot: Path, config_only: bool, load_format: str) -> bool:
    """Whether a snapshot has all its files: an interrupted download lacks some."""
    names = files_of(snapshot, None)
    if CONFIG not in names and PARAMS not in names:
        return False
    if config_only:
        return True
    layout = layout_of(names, load_format)
    index = read_index(snapshot, layout)
    try:
        chosen_files(files_of(snapshot, index), index, snapshot, layout)
    except WeightsError:
        return False
    return True
