"""Finds the files of a model, given a path or a hub name, and which of them are its weights.

The index of a directory, or of a hub's listing, says which safetensors files hold weights. Without
one there is one standard name, or a whole set of numbered files. All other files are left out, and
named. Two files with the same tensor would otherwise be read in the order of their names, and the
last one would win.
"""

import fnmatch
import glob
import json
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from jax_engine.errors import JaxEngineError, ModelNotFoundError, WeightsError, need
from jax_engine.models.checkpoints.default_model import default_model_path
from jax_engine.models.checkpoints.file_schema import checked, dead_links, read_json, short
from jax_engine.models.hf_schemas import IndexFields

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")
# What else lies beside weights, by its name, and what to do with it.
_OTHERS = {
    r"adapter": "a LoRA adapter: merge it with peft's merge_and_unload, and give the merged model",
    r"consolidated": "weights under the names of Meta's or Mistral's own code; a directory in "
    "Hugging Face layout is read",
    r"original/": "files of Meta's own code, which are not read",
    r"(v|value)_?head": "a value head of reinforcement learning: generation does not use it",
    r"(optimizer|scheduler|rng_state|training_args)": "the state of a training run",
    r".*\.(part|partial|incomplete|crdownload|download|aria2)$": "an unfinished download: "
    "download it again",
}
_UNKNOWN = "neither the index nor a standard name makes it the model's"


def read_index(directory: Path) -> Mapping[str, str] | None:
    """The file of each tensor by the index; None without an index.

    Raises:
        WeightsError: It is damaged, or a name leads out of the directory.
    """
    index = directory / INDEX
    if not index.exists():
        return None
    found = checked(read_json(index), IndexFields, str(index), WeightsError).weight_map
    outside = [shard for shard in sorted(set(found.values())) if not _is_plain_path(shard)]
    nothing = not found and not (directory / WHOLE).exists()
    if outside or nothing:
        raise WeightsError(
            f"{index}: weight_map must name files of its own directory, "
            f"got {short(outside[0] if outside else found)}."
        )
    return found


def _is_plain_path(name: str) -> bool:
    """Whether a name stays in the directory: no "..", not absolute, only printable text."""
    parts = PurePosixPath(name).parts
    return name.isprintable() and bool(parts) and ".." not in parts and parts[0] != "/"


def chosen_files(
    names: Collection[str], index: Mapping[str, str] | None, where: object
) -> list[str]:
    """The files to read, in the order of their names.

    An index that names files which are not there is stale where the one standard file is.

    Args:
        names: The files that there are; those in folders have a slash in their names.
        index: The file of each tensor.
        where: The directory or the hub's name, for messages.

    Raises:
        WeightsError: There are none, or it is not clear which.
    """
    if index:
        shards = sorted(set(index.values()))
        missing = [shard for shard in shards if shard not in names]
        if not missing:
            return shards
        if WHOLE not in names:
            raise WeightsError(
                f"{where}: {len(missing)} of {len(shards)} shards named by {INDEX} are missing, "
                f"{missing[0]} first. Download the model again."
            )
    if WHOLE in names:
        return [WHOLE]
    found = sorted(one for one in names if one.endswith(".safetensors") and "/" not in one)
    weights = [one for one in found if what_else(one) is None]
    if not weights:
        raise WeightsError(_no_weights(names, where))
    if _is_whole_set(weights):
        return weights
    raise WeightsError(
        f"{where}: it is not clear which of {', '.join(weights[:8])} are the model's weights: "
        f"there is no {INDEX}, no {WHOLE}, and no whole set of numbered files. Keep the model's "
        "own, or download it again."
    )


def _is_whole_set(names: list[str]) -> bool:
    """Whether it is one file, or all of a numbered set."""
    matches = [match for match in map(_NUMBERED.fullmatch, names) if match]
    if not matches:
        return len(names) == 1
    sets = {(match["stem"], int(match["count"])) for match in matches}
    numbers = sorted(int(match["number"]) for match in matches)
    whole = list(range(1, int(matches[0]["count"]) + 1))
    return len(matches) == len(names) and len(sets) == 1 and numbers == whole


def what_else(name: str) -> str | None:
    """What a file is that is known not to be the model's weights; else None."""
    return next((what for kind, what in _OTHERS.items() if re.match(kind, name)), None)


def left_over(names: Iterable[str], used: Collection[str]) -> list[str]:
    """What holds tensors and is not read, each with what it is: files, and the folder original/."""
    tops = {name if "/" not in name else f"{name.partition('/')[0]}/" for name in names}
    found = [
        name
        for name in sorted(tops - set(used))
        if name.endswith(".safetensors") or (what_else(name) and not name.endswith(".json"))
    ]
    return [f"{name} ({what_else(name) or _UNKNOWN})" for name in found]


def files_of(directory: Path, index: Mapping[str, str] | None) -> set[str]:
    """The names of a directory's files, of those in its folders, and of those of the index."""
    found = {*directory.glob("*"), *directory.glob("*/*")}
    found |= {directory / name for name in (index or {}).values()}
    files = (one for one in found if one.is_file() and not is_of_macos(one))
    return {one.relative_to(directory).as_posix() for one in files}


def is_of_macos(file: Path) -> bool:
    """Whether it holds what macOS knows of the file of the same name, on other systems' disks."""
    return file.name.startswith("._")


def _no_weights(names: Collection[str], where: object) -> str:
    """The message where no file is the model's weights."""
    pickled = [one for one in sorted(names) if one.endswith(PICKLED) and "/" not in one]
    pickled = [one for one in pickled if what_else(one) is None]
    if pickled:
        here = json.dumps(str(where), ensure_ascii=False)
        code = "from transformers import AutoModelForCausalLM as M; "
        code += f"M.from_pretrained({here}).save_pretrained({here})"
        return (
            f"{where} has its weights in {pickled[0]}, a pickle, which can run any code and is "
            "never read. Convert them once, on a machine with transformers and PyTorch: "
            f"python -c {shlex.quote(code)}"
        )
    others = left_over(names, ())
    if others:
        return f"{where} has no weights of the model that are read, only {'; '.join(others)}."
    return (
        f"{where} has no *.safetensors file. Convert the weights to safetensors, give a "
        'GGUF file, or use load_format="dummy" for random weights.'
    )


_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_CONFIG_FILES = ("*.json", "*.model", "*.jinja", "merges.txt", "*.tiktoken")
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


def resolve_model(model: str | None, *, config_only: bool = False, hub: HubOptions = HUB) -> Path:
    """Returns a directory in Hugging Face layout, or a GGUF file.

    Args:
        model: a path, a hub name ("owner/name"), or None for the default model.
        hub: options for models that are not on this machine.
        config_only: no weights are needed (dummy weights).

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
    return _from_hub(model, path, config_only, hub)


def _local_directory(path: Path) -> Path:
    if os.path.exists(path / "config.json"):
        return path
    ggufs = sorted(one for one in path.glob("*.gguf") if not is_of_macos(one))
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


def _from_hub(name: str, path: Path, config_only: bool, hub: HubOptions) -> Path:
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
        if _is_complete(cached, config_only):
            return cached
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    try:
        listed = huggingface_hub.HfApi(token=hub.token).model_info(name, revision=hub.revision)
        return _download(name, {one.rfilename for one in listed.siblings}, config_only, download)
    except JaxEngineError:
        raise
    except Exception as error:  # the hub client raises many kinds; all mean the same to the user
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if cached is not None:
            raise ModelNotFoundError(
                f"model {name!r}: {cached} lacks config.json or some *.safetensors weights. Either "
                "the download was interrupted and there is no network now, or the model has none, "
                f"or pickled ones only, which are never read. ({type(error).__name__}: {reason})"
            ) from error
        version = f" in revision {hub.revision!r}" if hub.revision else ""
        raise ModelNotFoundError(
            f"model {name!r} was not found{version}. Tried the local path {path.absolute()}, the "
            f"hub cache {hub.download_dir or HF_HUB_CACHE}, and a download from {ENDPOINT} "
            f"({type(error).__name__}: {reason}). "
            "Check the name, or give the path of a directory or a GGUF file."
        ) from error


def _download(name: str, listed: set[str], config_only: bool, download: Callable[..., str]) -> Path:
    """Fetches what is read, and no more: first the small files, then the weights of their index.

    Args:
        listed: the repository's files.

    Raises:
        ModelNotFoundError, WeightsError: it has no configuration or no weights that are read.
    """
    if "config.json" not in listed:
        raise ModelNotFoundError(f"model {name!r} has no config.json{_instead(listed)}.")
    small = [one for one in listed if _is_small(one)]
    fetched = Path(download(allow_patterns=list(map(glob.escape, small))))
    if config_only:
        return fetched
    weights = chosen_files(listed, read_index(fetched), name)
    return Path(download(allow_patterns=list(map(glob.escape, small + weights))))


def _is_small(name: str) -> bool:
    """Whether a file of a repository is one that is read beside the weights."""

    def is_one_of(kinds: Iterable[str]) -> bool:
        return any(fnmatch.fnmatch(name, kind) for kind in kinds)

    return is_one_of(_IN_FOLDERS) or (is_one_of(_CONFIG_FILES) and not is_one_of(_UNREAD))


def _is_complete(snapshot: Path, config_only: bool) -> bool:
    """Whether a snapshot has all its files: an interrupted download lacks some."""
    if not (snapshot / "config.json").exists():
        return False
    if config_only:
        return True
    index = read_index(snapshot)
    try:
        chosen_files(files_of(snapshot, index), index, snapshot)
    except WeightsError:
        return False
    return True
