"""Values of variables in a line or less: numbers, blocks, queues, by the names that a page uses.

>>> from types import SimpleNamespace
>>> values = Values(SimpleNamespace(groups={}, seq_ids={}))
>>> values.short([7, 1, 3]), values.short({"A": True}), values.short(list(range(40)))
('[7, 1, 3]', "{'A': True}", '[0, 1, 2, 3, 4, 5, 6, 7, … 32 more]')
>>> values.short(len) is None
True
"""

from collections.abc import Iterable
from enum import Enum
from types import FrameType
from typing import Any

from reference.blocks import BlockTable
from reference.prefix_cache import CachedBlock
from reference.scheduler_state import ScheduledSequence
from reference.sequence import Sequence, SequenceGroup

MOST_ITEMS, MOST_LETTERS = 8, 70
"""What is longer is cut."""
ABSENT = object()
BRACKETS = {list: ("[", "]"), tuple: ("(", ")")}


class Values:
    """The values of a run, whose requests have names.

    Nothing is asked of the run that would change it: a sequence that has no name yet gets a number.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def of(self, frame: FrameType, names: Iterable[str]) -> dict[str, str]:
        """Values of names and chains of attributes; what has no short form is left out."""
        there = frame.f_locals
        found = {name: self.short(_value(there, name)) for name in names}
        return {name: said for name, said in found.items() if said is not None}

    def short(self, value: Any) -> str | None:
        """A value in words; None for what has no short form."""
        said = self._said(value)
        if said is None or len(said) <= MOST_LETTERS:
            return said
        return f"{said[: MOST_LETTERS - 1]}…"

    def _said(self, value: Any) -> str | None:
        if isinstance(value, Enum):
            return str(value.value)
        if value is None or isinstance(value, bool | int | float | str):
            return f"{value:.3g}" if isinstance(value, float) else repr(value)
        if isinstance(value, SequenceGroup):
            return str(value.request_id)
        if isinstance(value, Sequence):
            return self._name(value)
        if isinstance(value, BlockTable):
            return self._said(value.blocks)
        if isinstance(value, CachedBlock):
            return f"block {value.block}"
        if isinstance(value, ScheduledSequence):
            end = value.start + value.num_tokens
            return f"{self._name(value.seq)} at {value.start} to {end - 1}"
        return self._collection(value)

    def _collection(self, value: Any) -> str | None:
        if isinstance(value, dict):
            pairs = [(self._said(key), self._said(one)) for key, one in value.items()]
            if any(None in pair for pair in pairs):
                return None
            return f"{{{_listed([f'{key}: {one}' for key, one in pairs])}}}"
        if isinstance(value, list | tuple | set | frozenset):
            parts = [self._said(one) for one in value]
            if any(one is None for one in parts):
                return None
            opened, closed = BRACKETS.get(type(value), ("{", "}"))
            comma = "," if isinstance(value, tuple) and len(parts) == 1 else ""
            return f"{opened}{_listed([str(one) for one in parts])}{comma}{closed}"
        return None

    def _name(self, seq: Sequence) -> str:
        for group in self._run.groups.values():
            if seq in group.seqs:
                return self._of_group(group, seq)
        return f"sequence {seq.seq_id}"

    def _of_group(self, group: SequenceGroup, seq: Sequence) -> str:
        if group.num_samples == 1:
            return str(group.request_id)
        known = self._run.seq_ids.get(group.request_id, [])
        if seq.seq_id in known:
            return f"{group.request_id}{known.index(seq.seq_id) + 1}"
        return f"{group.request_id} (sequence {seq.seq_id})"


def _value(there: Any, chain: str) -> Any:
    name, *attributes = chain.split(".")
    value = there.get(name, ABSENT)
    for attribute in attributes:
        value = getattr(value, attribute, ABSENT)
    return value


def _listed(parts: list[str]) -> str:
    more = len(parts) - MOST_ITEMS
    if more <= 0:
        return ", ".join(parts)
    return f"{', '.join(parts[:MOST_ITEMS])}, … {more} more"
