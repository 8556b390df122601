"""PEFT's `adapter_config.json`: which modules an adapter changes, with which ranks and scaling.

Every field of PEFT's LoraConfig is honoured or refused by name. Those of training, such as
`lora_dropout`, change nothing when an adapter is used. A field that is not known here is refused
unless it says nothing: null, false, or empty.

PEFT names modules by regular expressions, which come with the file. Python's `re` can take longer
than the age of the universe for some of thirty characters, and cannot be stopped. Here they are
matched without backtracking: a pattern keeps the *set* of places that it can have reached in a
name, so that the time is bounded by a polynomial of both lengths. What needs more than such a set
is refused: references to groups, and looking around.
"""

import functools
import math
import re
from collections.abc import Iterable, Mapping
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jax_engine.errors import ConfigError
from jax_engine.lora.modules import Module
from jax_engine.models.checkpoints.file_schema import Count, Size, checked, short

MAX_CHARACTERS = 1 << 14
_NO_REPEATS = re.compile(r"\^?[\w.-]+")  # `re` takes such patterns in a time that is bounded, too
_SIMPLE = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN, codes.AT)
_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}
_PLACES = {
    codes.AT_BEGINNING: r"^",
    codes.AT_BEGINNING_STRING: r"\A",
    codes.AT_BOUNDARY: r"\b",
    codes.AT_NON_BOUNDARY: r"\B",
    codes.AT_END: r"$",
    codes.AT_END_STRING: r"\Z",
}


def matches(pattern: str, name: str, field: str) -> bool:
    """Whether the pattern matches the whole name, as `re.fullmatch` does.

    Args:
        field: the field of the adapter's configuration that has the pattern.

    Raises:
        ConfigError: it is no regular expression, is too long, or uses what is not supported.
    """
    try:
        return len(name) in _Match(name).after(_parsed(pattern), frozenset((0,)))
    except (re.error, RecursionError, OverflowError, _Unsupported) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise ConfigError(
            f"{field}: {short(pattern)} is not a supported pattern: {what}."
        ) from None


def matches_end(pattern: str, name: str, field: str) -> bool:
    """Whether the pattern matches the name, or its end behind a dot: PEFT's `rank_pattern`.

    Raises:
        ConfigError: as `matches`.
    """
    if _NO_REPEATS.fullmatch(pattern):
        return re.fullmatch(rf"(.*\.)?({pattern})", name) is not None
    matches(pattern, "", field)  # on its own, too: "a)|(b" is no pattern
    return matches(rf"(.*\.)?({pattern})", name, field)


class _Unsupported(Exception):
    pass


@functools.lru_cache(maxsize=4096)
def _parsed(pattern: str) -> Any:
    if len(pattern) > MAX_CHARACTERS:
        raise _Unsupported(f"it has {len(pattern)} characters, at most {MAX_CHARACTERS} are read")
    found = parser.parse(pattern)
    if found.state.flags & ~re.UNICODE.value:
        raise _Unsupported("flags are not supported")
    _check(found)
    return found


def _check(items: Iterable[tuple[Any, Any]]) -> None:
    """Raises _Unsupported for what a set of places cannot tell."""
    for code, value in items:
        if code is codes.BRANCH:
            for one in value[1]:
                _check(one)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            _check(value[2])
        elif code is codes.SUBPATTERN:
            if value[1] or value[2]:
                raise _Unsupported("flags are not supported")
            _check(value[3])
        elif code not in _SIMPLE:
            raise _Unsupported(f"{str(code).lower()} is not supported")


class _Match:
    """A pattern on its way through one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[tuple[int, int], frozenset[int]] = {}  # of an item, from a place

    def after(self, items: Iterable[tuple[Any, Any]], places: frozenset[int]) -> frozenset[int]:
        """Where the items can end, one after another, that begin at one of the places."""
        for item in items:
            places = frozenset().union(*(self._from(item, place) for place in places))
        return places

    def _from(self, item: tuple[Any, Any], place: int) -> frozenset[int]:
        key = id(item), place
        if key not in self._known:
            self._known[key] = frozenset(self._ends(*item, place))
        return self._known[key]

    def _ends(self, code: Any, value: Any, place: int) -> Iterable[int]:
        if code is codes.BRANCH:
            here = frozenset((place,))
            return frozenset().union(*(self.after(one, here) for one in value[1]))
        if code is codes.SUBPATTERN:
            return self.after(value[3], frozenset((place,)))
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, items = value
            return self._repeated(int(least), int(most), items, place)
        if code is codes.AT:
            found = re.compile(_PLACES[value]).match(self._text, place)
            # With a start, ^ means the text's own beginning, as it should.
            return () if found is None else (place,)
        if place == len(self._text):
            return ()
        return (place + 1,) if _is_one(code, value, self._text[place]) else ()

    def _repeated(self, least: int, most: int, items: Any, place: int) -> frozenset[int]:
        """Where so many repetitions can end.

        As no item goes back, repetitions beyond the text's length add places or lose them no more.
        """
        longest = len(self._text) + 1
        places = frozenset((place,))
        for _ in range(min(least, longest)):
            places = self.after(items, places)
        found = places
        for _ in range(min(most - least, longest)):
            places = self.after(items, places) - found
            if not places:
                break
            found |= places
        return found


def _is_one(code: Any, value: Any, character: str) -> bool:
    """Whether an item of one character is this one."""
    if code is codes.LITERAL:
        return ord(character) == int(value)
    if code is codes.NOT_LITERAL:
        return ord(character) != int(value)
    if code is codes.ANY:
        return character != "\n"
    negated = value[0][0] is codes.NEGATE
    return negated != any(_is_in(kind, one, character) for kind, one in value[negated:])


def _is_in(code: Any, value: Any, character: str) -> bool:
    if code is codes.RANGE:
        return bool(value[0] <= ord(character) <= value[1])
    if code is codes.CATEGORY:
        return re.fullmatch(_CATEGORIES[value], character) is not None
    return ord(character) == int(value)


FILE = "adapter_config.json"
ALL_LINEAR = "all-linear"
Alpha = Annotated[float, Meta(ge=-1e30, le=1e30)]
Fraction = Annotated[float, Meta(ge=0, le=1)]
Names = str | list[str] | None

# What only training, or who reads the file, makes use of.
_IGNORED = (
    *("base_model_name_or_path", "revision", "auto_mapping", "task_type"),
    *("inference_mode", "runtime_config", "megatron_core", "qalora_group_size", "eva_config"),
)
# Ways to initialise that leave the base's weights as they are; after training they are history.
_PLAIN_INITS = (True, False, "gaussian", "eva", "orthogonal")
_REFUSED = {
    "use_dora": "DoRA's magnitudes are not computed",
    "use_qalora": "QALoRA's pooled inputs are not computed",
    "modules_to_save": "whole modules in place of the model's are not read",
    "layer_replication": "the model's layers are those of its own configuration",
    "trainable_token_indices": "rows in place of the embedding's are not read",
    "alora_invocation_tokens": "an adapter that begins in the middle of a prompt is not computed",
    "ensure_weight_tying": "an adapter of a tied embedding changes the embedding or the head only",
    "megatron_config": "Megatron's parallel layers are not read",
    "loftq_config": "LoftQ changes the base's weights",
    "corda_config": "CorDA changes the base's weights",
    "arrow_config": "routers over adapters are not computed",
}


class PeftFields(msgspec.Struct, frozen=True):
    """The fields that are honoured, with PEFT's defaults."""

    peft_type: str = "LORA"
    peft_version: str | None = None
    r: Size = 8
    lora_alpha: Alpha = 8
    use_rslora: bool | None = False
    rank_pattern: dict[str, Size] | None = None
    alpha_pattern: dict[str, Alpha] | None = None
    target_modules: Names = None
    exclude_modules: Names = None
    target_parameters: list[str] | None = None
    layers_to_transform: Count | list[Count] | None = None
    layers_pattern: Names = None
    lora_bias: bool | None = False
    bias: str | None = "none"
    fan_in_fan_out: bool | None = False  # how the base's weight is stored; A and B are the same
    lora_dropout: Fraction | None = 0.0
    init_lora_weights: bool | str | None = True


def peft_fields(raw: Mapping[str, Any], where: str = FILE) -> PeftFields:
    """The configuration, checked.

    Args:
        where: the file's name in messages.

    Raises:
        ConfigError: a field has a wrong type, or asks for what is not computed.
    """
    fields = checked(raw, PeftFields, where)
    _check_values(fields, where)
    known = {one.encode_name for one in msgspec.structs.fields(PeftFields)} | {*_IGNORED}
    for name, value in raw.items():
        if name not in known and not _says_nothing(value):
            why = _REFUSED.get(name, "the field is not known")
            raise ConfigError(f"{where}: {name} {short(value)} is not supported: {why}.")
    return fields


def _says_nothing(value: object) -> bool:
    return value is None or value is False or (isinstance(value, str | list | dict) and not value)


def _check_values(fields: PeftFields, where: str) -> None:
    def refuse(name: str, known: str) -> None:
        value = short(getattr(fields, name))
        raise ConfigError(f"{where}: {name} {value} is not supported; known: {known}.")

    if fields.peft_type != "LORA":
        refuse("peft_type", "'LORA'")
    if fields.bias not in (None, "none"):
        refuse("bias", "'none': the model's own biases stay as they are")
    init = fields.init_lora_weights
    if init is not None and init not in _PLAIN_INITS:
        refuse(
            "init_lora_weights",
            f"{', '.join(map(repr, _PLAIN_INITS))}, which leave the base's weights as they are. "
            "Save the adapter as a difference to the base (PEFT's "
            "path_initial_model_for_weight_conversion)",
        )
    layers = fields.layers_to_transform not in (None, [])
    if layers and isinstance(fields.target_modules, str):
        refuse("layers_to_transform", "null where target_modules is a string, as in PEFT")
    if fields.layers_pattern and not layers:
        refuse("layers_pattern", "null where layers_to_transform is not given, as in PEFT")


def selects(fields: PeftFields, name: str, module: Module) -> bool:
    """Whether the adapter changes a module of this name. Raises ConfigError for a bad pattern.

    `target_modules` that is null selects all: PEFT then goes by the kind of model.
    """
    excluded, targets = fields.exclude_modules, fields.target_modules
    if excluded and _is_among(name, excluded, "exclude_modules"):
        return False
    if targets is None:
        return _is_in_layers(fields, name)
    if isinstance(targets, str) and targets.lower() == ALL_LINEAR:
        return module.kind in ("linear", "experts", "router")
    if isinstance(targets, list) and name in targets:
        return True  # PEFT does not ask for the layer of a module that is named in full
    return _is_among(name, targets, "target_modules") and _is_in_layers(fields, name)


def _is_among(name: str, names: str | list[str], field: str) -> bool:
    """By a pattern of the whole name, or a list of ends of names, whole parts of them."""
    if isinstance(names, str):
        return matches(names, name, field)
    return any(_ends_with(name, one) for one in names)


def _ends_with(name: str, end: str) -> bool:
    return name == end or name.endswith(f".{end}")


def is_target(fields: PeftFields, parameter: str) -> bool:
    """Whether `target_parameters` has a parameter. PEFT then asks for no layers or exclusions."""
    return any(_ends_with(parameter, one) for one in fields.target_parameters or [])


def _is_in_layers(fields: PeftFields, name: str) -> bool:
    """Whether the layer of a module is one of `layers_to_transform`.

    Its number is the last part of the name that is a number behind a list of layers.
    """
    wanted = fields.layers_to_transform
    if wanted is None or wanted == []:
        return True
    given = fields.layers_pattern or "[^.]*"
    patterns = [given] if isinstance(given, str) else given
    parts = name.split(".")
    for pattern in patterns:
        for at in range(len(parts) - 2, 0, -1):
            lists = ".".join(parts[:at])
            if re.fullmatch(r"\d+", parts[at]) and matches(
                rf".*\.(?:{pattern})", lists, "layers_pattern"
            ):
                return int(parts[at]) in ([wanted] if isinstance(wanted, int) else wanted)
    return False


def rank_of(fields: PeftFields, name: str) -> int:
    """The rank of a module: `rank_pattern`'s first entry for it, or `r`. Raises ConfigError."""
    return _of_pattern(fields.rank_pattern, name, fields.r, "rank_pattern")


def scaling_of(fields: PeftFields, name: str) -> float:
    """alpha / rank, or alpha / sqrt(rank) with `use_rslora`. Raises ConfigError."""
    alpha = _of_pattern(fields.alpha_pattern, name, fields.lora_alpha, "alpha_pattern")
    rank = rank_of(fields, name)
    return alpha / (math.sqrt(rank) if fields.use_rslora else rank)


def _of_pattern[T](patterns: Mapping[str, T] | None, name: str, otherwise: T, field: str) -> T:
    for pattern, value in (patterns or {}).items():
        if matches_end(pattern, name, field):
            return value
    return otherwise
