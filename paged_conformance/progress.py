"""How a run goes on: a bar on a terminal, a line for each property elsewhere."""

import sys
import time

from tqdm import tqdm

from paged_conformance.runs import Outcome, Status, Watcher


class Bar(Watcher):
    """A bar of the seconds that are spent."""

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._bar = tqdm(
            total=seconds,
            leave=False,
            bar_format="{desc} {bar} {n:.0f}/{total:.0f} s{postfix}",
            file=sys.stderr,
        )
        self._num_examples = 0
        self._num_failures = 0

    def begins(self, outcome: Outcome) -> None:
        self._bar.set_description_str(outcome.prop.name[:40].ljust(40), refresh=True)

    def tick(self) -> None:
        self._num_examples += 1
        spent = min(time.monotonic() - self._start, self._bar.total)
        self._bar.update(max(0.0, spent - self._bar.n))
        failures = f", {self._num_failures} fell" if self._num_failures else ""
        self._bar.set_postfix_str(f"{self._num_examples:,} examples{failures}", refresh=False)

    def ends(self, outcome: Outcome) -> None:
        if outcome.status is Status.FELL:
            self._num_failures += 1
            self._bar.write(f"FELL {outcome.prop.name}: {_short(outcome)}", file=sys.stderr)

    def closes(self) -> None:
        self._bar.close()


class Lines(Watcher):
    """A line for each property that had its turn, and at once for one that falls later."""

    def __init__(self, num_properties: int) -> None:
        self._num_properties = num_properties
        self._seen: list[str] = []

    def ends(self, outcome: Outcome) -> None:
        again = outcome.prop.name in self._seen
        if again and outcome.status is Status.HELD:
            return
        if not again:
            self._seen.append(outcome.prop.name)
        says = f": {_short(outcome)}" if outcome.status is Status.FELL else ""
        print(
            f"[{len(self._seen)}/{self._num_properties}] {outcome.prop.name} {outcome.status} "
            f"({outcome.found.num_examples:,} examples){says}",
            file=sys.stderr,
            flush=True,
        )


def _short(outcome: Outcome) -> str:
    line = outcome.found.says.partition("\n")[0]
    return line if len(line) <= 100 else line[:97] + "..."


def watcher_for(seconds: float, num_properties: int) -> Watcher:
    return Bar(seconds) if sys.stderr.isatty() else Lines(num_properties)
