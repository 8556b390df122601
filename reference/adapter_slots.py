"""Adapters on the device: one model, many small changes of it (see `lora`), a few at a time.

A device holds the weights of the model, and beside them room for some adapters: slot 1, 2, .. up to
`max_loras`. A step may compute requests of all of these together: each row says which slot is its
request's, 0 for the model alone. So before a group runs, its adapter must have a slot, and as long
as the group runs, the adapter stays there:

1. Who is to join the running groups needs a slot for its adapter: the one where it lies already, or
   one that was never used, or else one whose adapter no running group uses. Of these it gets the
   one that has been out of use for longest. If there is none, the group waits, as it does for
   blocks, and nobody passes it.
2. Who leaves the running groups, for whatever reason, needs its slot no more. The adapter stays
   there until its place is wanted: it may be asked for again soon.

Nobody waits for ever, since only running groups stand in the way, and each of them finishes (see
`admission`); when none is left, every slot can be had.

>>> slots = AdapterSlots(2)
>>> slots.load("french", in_use=[]), slots.load("verse", in_use=["french"])
((1, True), (2, True))
>>> slots.has_room_for("code", in_use=["french", "verse"])
False
>>> slots.note_left("verse"), slots.note_left("french")
(None, None)
>>> slots.load("verse", in_use=[])                   # it is still there
(2, False)
>>> slots.load("code", in_use=["verse"]), slots.names
((1, True), ['code', 'verse'])
"""

from collections.abc import Collection, Hashable

Adapter = Hashable
"""Anything that is equal if, and only if, it changes the model in the same way."""


class AdapterSlots:
    """What lies in each slot, and how long it has not been used."""

    def __init__(self, num_slots: int) -> None:
        self.names: list[Adapter | None] = [None] * num_slots
        self._left_at = [0] * num_slots
        self._clock = 0

    def slot_of(self, adapter: Adapter | None) -> int:
        """Where an adapter lies; 0 for none, and for one that is not on the device."""
        return 0 if adapter is None or adapter not in self.names else self.names.index(adapter) + 1

    def has_room_for(self, adapter: Adapter | None, in_use: Collection[Adapter | None]) -> bool:
        """May this adapter be used beside those in use?"""
        return adapter is None or bool(self.slot_of(adapter) or self._replaceable(in_use))

    def load(self, adapter: Adapter, in_use: Collection[Adapter | None]) -> tuple[int, bool]:
        """Give it a slot; which, and whether it has to be brought there."""
        slot = self.slot_of(adapter)
        if slot:
            return slot, False
        place = min(self._replaceable(in_use), key=lambda place: (self._left_at[place], place))
        self.names[place] = adapter
        return place + 1, True

    def note_left(self, adapter: Adapter | None) -> None:
        """A group with this adapter runs no more."""
        self._clock += 1
        if adapter in self.names and adapter is not None:
            self._left_at[self.names.index(adapter)] = self._clock

    def _replaceable(self, in_use: Collection[Adapter | None]) -> list[int]:
        """Places whose adapter nobody uses. One that was never used was left before all others."""
        return [
            place for place, name in enumerate(self.names) if name is None or name not in in_use
        ]
