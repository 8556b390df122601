"""Which safetensors files of a directory, or of a hub's listing, are the model's weights.

The index says it; without one there is one standard name, or a whole set of numbered files. All
other files are left out, and named. Two files with the same tensor would otherwise be read in the
order of their names, and the last one would win.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from jax_engine.errors import WeightsError
from jax_engine.file_schema import checked, read_json, short
from jax_engine.models.schemas import IndexFields

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
