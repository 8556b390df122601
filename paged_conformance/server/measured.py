"""What was measured beside what was tested, for the report."""

import threading

_lock = threading.Lock()
numbers: dict[str, float] = {}  # what was measured, by name; the report shows it


def count(name: str, amount: float = 1) -> None:
    """Adds to a number."""
    with _lock:
        numbers[name] = numbers.get(name, 0) + amount


def largest(name: str, value: float) -> None:
    """Keeps the largest value of a number."""
    with _lock:
        numbers[name] = max(numbers.get(name, 0.0), value)
