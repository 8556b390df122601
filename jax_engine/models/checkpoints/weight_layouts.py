"""Which files of a model hold its weights, by their names alone.

There are three layouts: safetensors or PyTorch's pickles under Hugging Face's names, and files
under Mistral's. The index of a directory, or of a hub's listing, says which files hold weights.
Without one there is one standard name, or a whole set of numbered files. All other files are left
out, and named. Two files with the same tensor would otherwise be read in the order of their names,
and the last one would win.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from jax_engine.errors import WeightsError
from jax_engine.models.checkpoints.file_schema import checked, read_json, short
from jax_engine.models.hf_schemas import IndexFields


@dataclass(frozen=True)
class Layout:
    """How the files of weights are named.

    Attributes:
        index: the file that names the file of each tensor.
        whole: the one file that holds all.
        ends: suffixes of the names of other files, the preferred one first.
        start: what their names begin with.
    """

    index: str
    whole: str
    ends: tuple[str, ...]
    start: str = ""

    def weights(self, names: Iterable[str]) -> list[str]:
        """Those of a directory's own files that may be the model's, of the preferred kind."""
        own = sorted(one for one in names if "/" not in one and one.startswith(self.start))
        if not self.start:
            own = [one for one in own if what_else(one) is None]
        found = ([one for one in own if one.endswith(end)] for end in self.ends)
        return next(filter(None, found), [])


SAFETENSORS = Layout("model.safetensors.index.json", "model.safetensors", (".safetensors",))
PYTORCH = Layout(
    "pytorch_model.bin.index.json", "pytorch_model.bin", (".bin", ".pt", ".pth", ".ckpt")
)
MISTRAL = Layout(
    "consolidated.safetensors.index.json",
    "consolidated.safetensors",
    (".safetensors", ".pth", ".pt"),
    start="consolidated",
)
WEIGHT_ENDS = (*SAFETENSORS.ends, *PYTORCH.ends)
INDEX, WHOLE = SAFETENSORS.index, SAFETENSORS.whole
CONFIG, PARAMS = "config.json", "params.json"  # of Hugging Face and of Mistral
# What else lies beside weights, by its name, and what to do with it.
_OTHERS = {
    r"adapter": "a LoRA adapter: merge it with peft's merge_and_unload, and give the merged model",
    r"consolidated": "weights under the names of Meta's or Mistral's own code; with Mistral's "
    'params.json they are read by load_format="mistral"',
    r"original/": "files of Meta's own code, which are not read",
    r"(v|value)_?head": "a value head of reinforcement learning: generation does not use it",
    r"(optimizer|scheduler|rng_state|training_args)": "the state of a training run",
    r".*\.(part|partial|incomplete|crdownload|download|aria2)$": "an unfinished download: "
    "download it again",
}
_UNKNOWN = "neither the index nor a standard name makes it the model's"
_NUMBERED = re.compile(
    r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(safetensors|bin|pt|pth|ckpt)"
)
_COUNTED = re.compile(r"consolidated\.(?P<number>\d\d)\.(pth|pt)")
# The layouts that each load_format allows; others allow Hugging Face's two.
_OF_FORMAT = {
    "safetensors": (SAFETENSORS,),
    "sharded_state": (SAFETENSORS,),
    "pt": (PYTORCH,),
    "mistral": (MISTRAL,),
}


def layout_of(names: Collection[str], load_format: str = "auto") -> Layout:
    """The layout that is read, as vLLM chooses it: Mistral's, then safetensors, then PyTorch's.

    Args:
        names: the files that there are; those in folders have a slash in their names.
    """
    allowed = _OF_FORMAT.get(load_format, (SAFETENSORS, PYTORCH))
    if load_format == "auto" and is_mistral(names):
        allowed = (MISTRAL,)
    found = (one for one in allowed if one.index in names or one.weights(names))
    return next(found, allowed[0])


def is_mistral(names: Collection[str]) -> bool:
    """Whether a model is in Mistral's own format, in which it may be beside Hugging Face's."""
    if PARAMS not in names:
        return False
    found = MISTRAL.weights(names)
    return CONFIG not in names or any(one.endswith(".safetensors") for one in found)


def read_index(directory: Path, layout: Layout = SAFETENSORS) -> Mapping[str, str] | None:
    """The file of each tensor by the index; None without an index.

    Raises:
        WeightsError: It is damaged, or a name leads out of the directory.
    """
    index = directory / layout.index
    if not index.exists():
        return None
    found = checked(read_json(index), IndexFields, str(index), WeightsError).weight_map
    outside = [shard for shard in sorted(set(found.values())) if not _is_plain_path(shard)]
    nothing = not found and not (directory / layout.whole).exists()
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
    names: Collection[str],
    index: Mapping[str, str] | None,
    where: object,
    layout: Layout = SAFETENSORS,
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
        if layout.whole not in names:
            raise WeightsError(
                f"{where}: {len(missing)} of {len(shards)} shards named by {layout.index} are "
                f"missing, {missing[0]} first. Download the model again."
            )
    if layout.whole in names:
        return [layout.whole]
    weights = layout.weights(names)
    if not weights:
        raise WeightsError(_no_weights(names, where, layout))
    if _is_whole_set(weights):
        return weights
    raise WeightsError(
        f"{where}: it is not clear which of {', '.join(weights[:8])} are the model's weights: "
        f"there is no {layout.index}, no {layout.whole}, and no whole set of numbered files. Keep "
        "the model's own, or download it again."
    )


def _is_whole_set(names: list[str]) -> bool:
    """Whether it is one file, or all of a numbered set."""
    counted = [match for match in map(_COUNTED.fullmatch, names) if match]
    if len(counted) == len(names):
        return [int(match["number"]) for match in counted] == list(range(len(names)))
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


def left_over(
    names: Iterable[str], used: Collection[str], layout: Layout = SAFETENSORS
) -> list[str]:
    """What holds tensors and is not read, each with what it is: files, and the folder original/.

    The weights of another layout are not named: they hold the same tensors.
    """
    tops = {name if "/" not in name else f"{name.partition('/')[0]}/" for name in names}
    found = [
        name
        for name in sorted(tops - set(used))
        if (name.startswith(layout.start) and name.endswith(layout.ends[0]))
        or (what_else(name) and not name.endswith(".json"))
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


def _no_weights(names: Collection[str], where: object, layout: Layout) -> str:
    """The message where no file is the model's weights."""
    kinds = {"safetensors": SAFETENSORS, "pt": PYTORCH, "mistral": MISTRAL}
    for name, one in kinds.items():
        found = [] if one is layout else one.weights(names)
        if found and (one is not MISTRAL or PARAMS in names):
            return (
                f"{where} has no {layout.whole}, only {found[0]}: give load_format={name!r}, or "
                "leave load_format out."
            )
    others = left_over(names, ())
    if others:
        return f"{where} has no weights of the model that are read, only {'; '.join(others)}."
    return (
        f"{where} has no *.safetensors file and no {PYTORCH.whole}. Give a directory with the "
        'model\'s weights, a GGUF file, or load_format="dummy" for random weights.'
    )
