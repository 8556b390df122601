"""Deadlines of requests: the earliest one is found at once, however many there are."""

from heapq import heapify, heappop, heappush

_FEW = 64  # entries of finished requests that are not worth a clean-up


class Deadlines:
    """Request ids ordered by deadline: constant work per step, logarithmic work per request."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str]] = []
        self._numbers: dict[str, int] = {}  # number of an id's newest entry: ids are reused
        self._num_added = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, request_id: str, deadline: float) -> None:
        """Adds an id that has no deadline yet."""
        self._num_added += 1
        self._numbers[request_id] = self._num_added
        heappush(self._heap, (deadline, self._num_added, request_id))

    def remove(self, request_id: str) -> None:
        """Forgets an id, if it has a deadline."""
        self._numbers.pop(request_id, None)
        if len(self._heap) > 2 * len(self._numbers) + _FEW:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapify(self._heap)

    def expired(self, now: float) -> list[str]:
        """Takes out the ids whose deadline is `now` or earlier, soonest first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            entry = heappop(self._heap)
            if self._counts(entry):
                del self._numbers[entry[2]]
                found.append(entry[2])
        return found

    def _counts(self, entry: tuple[float, int, str]) -> bool:
        return self._numbers.get(entry[2]) == entry[1]
