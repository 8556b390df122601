"""Which LoRA adapter lies in which slot of the device.

The device holds a few adapters at a time, and a row of a step names the slot of its request's. A
running group pins the slot of its adapter, so nothing replaces it. An adapter that nobody pins
stays where it is until its slot is needed: the one that was pinned longest ago goes first.

A group that has no slot waits at the head of its queue, and nobody overtakes it (`SchedulerState`).
A waiting or swapped group pins nothing. So when no group runs, each adapter can have a slot.
"""

from jax_engine.lora.adapter import Adapter

NO_ADAPTER = 0  # the slot of rows without one


class AdapterSlots:
    """Slots 1 .. num_slots, each with at most one adapter; they know adapters by their digests.

    Takes constant time, whatever is pinned.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._slots: dict[str, int] = {}
        self._pins: dict[str, int] = {}  # how many groups pin an adapter, of those that are pinned
        self._idle: dict[str, None] = {}  # the others, those first that were pinned longest ago

    def has_room_for(self, adapter: Adapter | None) -> bool:
        """Whether it has a slot, or can have one."""
        return adapter is None or adapter.digest in self._slots or self._has_free_slot

    @property
    def _has_free_slot(self) -> bool:
        return len(self._slots) < self.num_slots or bool(self._idle)

    def pin(self, adapter: Adapter) -> tuple[int, bool]:
        """Gives an adapter a slot, which it keeps at least until `unpin`.

        Returns:
            The slot, and whether the adapter must be put there.
        """
        digest = adapter.digest
        is_new = digest not in self._slots
        if is_new:
            self._slots[digest] = self._take_slot()
        self._idle.pop(digest, None)
        self._pins[digest] = self._pins.get(digest, 0) + 1
        return self._slots[digest], is_new

    def unpin(self, adapter: Adapter) -> None:
        """Ends one `pin`. The adapter stays in its slot until another one needs it."""
        digest = adapter.digest
        self._pins[digest] -= 1
        if not self._pins[digest]:
            del self._pins[digest]
            self._idle[digest] = None

    def clear(self) -> None:
        """Forgets all: the device holds no adapter any more, and no group runs."""
        self._slots.clear()
        self._pins.clear()
        self._idle.clear()

    def held(self) -> dict[str, int]:
        """The slots of all adapters on the device, by digest."""
        return dict(self._slots)

    def pinned(self) -> dict[str, int]:
        """How many groups pin an adapter, by digest; those that nobody pins are left out."""
        return dict(self._pins)

    def _take_slot(self) -> int:
        if len(self._slots) < self.num_slots:
            return len(self._slots) + 1  # slots are never given back, so these were never used
        assert self._idle, "the caller asks has_room_for"
        oldest = next(iter(self._idle))
        del self._idle[oldest]
        return self._slots.pop(oldest)
