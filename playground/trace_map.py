"""An engine's trace as docs/javascripts/replay.js draws it: the moments of each step.

The captions say what the trace says; why, only the engine knows.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from playground.trace_replayed import Known, Replayed, Step
from playground.trace_sentences import blocks, counted, listed

MOST_MOMENTS = 600
"""So many moments are drawn at most; all steps are checked."""


class Mapped:
    """Moments, as the steps go by."""

    def __init__(self, state: Replayed) -> None:
        self.state = state
        self.moments: list[dict[str, Any]] = []
        self.words: dict[int, str] = {}
        """By what a slot holds, the word to show."""

    def trace(self) -> dict[str, Any]:
        trace = self.state.trace
        engine = trace["engine"]
        return {
            "name": "engine",
            "title": f"{engine['name']} {engine['version']}",
            "about": trace.get("about", ""),
            "block_size": trace["block_size"],
            "budget": trace.get("max_num_batched_tokens", 0),
            "fifo": True,
            "requests": [one["id"] for one in trace["requests"]],
            "moments": self.moments,
        }

    def planned(self, step: Step, number: int) -> None:
        if step.get("arrived"):
            self._add("arrive", f"{listed(step['arrived'])} arrived.", step, number)
        said = [f"{listed(step['preempted'])} is preempted."] if step.get("preempted") else []
        for entry in self.state.entries:
            where = blocks(step["tables"].get(entry.name, []))
            what = counted(entry.end - entry.start, "token")
            said.append(f"{what} of {entry.name} from position {entry.start} on ({where}).")
        self._add("plan", " ".join(said) or "Nothing is computed.", step, number, pending=True)

    def moved(self, step: Step, number: int) -> None:
        if any(step.get(name) for name in ("swap_in", "swap_out", "copies")):
            self._add("moved", "Blocks are moved.", step, number, pending=True)

    def written(self, step: Step, number: int) -> None:
        if self.state.entries:
            names = listed(entry.name for entry in self.state.entries)
            said = f"The model writes keys and values of {names}."
            self._add("written", said, step, number, done=True, pending=True)

    def fell(self, fallen: list[Mapping[str, Any]], step: Step, number: int) -> None:
        for one in fallen:
            said = f"{one['invariant']} falls: {one['says']}."
            self._add("fell", said, step, number, done=True, pending=True)

    def drawn(self, step: Step, number: int) -> None:
        drawn = step.get("drawn", {})
        texts = [f"{name} draws “{self._text(tokens)}”" for name, tokens in drawn.items() if tokens]
        said = [f"{listed(texts)}."] if texts else ["Nothing is drawn."]
        if step.get("finished"):
            said.append(f"{listed(step['finished'])} has ended.")
        self._add("drawn", " ".join(said), step, number)

    def _text(self, tokens: list[int]) -> str:
        return " ".join(self._word(token) for token in tokens)

    def _word(self, token: int) -> str:
        return str(self.state.trace.get("texts", {}).get(str(token), token))

    def _add(
        self,
        kind: str,
        says: str,
        step: Step,
        number: int,
        *,
        pending: bool = False,
        done: bool = False,
    ) -> None:
        """A moment; of a `pending` one the entries are being computed, and `done` when written."""
        if len(self.moments) >= MOST_MOMENTS:
            return
        entries = {entry.name: entry for entry in self.state.entries} if pending else {}
        for entry in entries.values():
            self._learn(entry.fed)
        moves = [
            {"kind": short, "from": source, "to": target}
            for short, name in (("in", "swap_in"), ("out", "swap_out"), ("copy", "copies"))
            for source, target in (step.get(name, []) if pending else [])
        ]
        self.moments.append(
            {
                "step": number,
                "kind": kind,
                "says": says,
                "tokens": sum(entry.end - entry.start for entry in entries.values()),
                "moves": moves,
                "queues": self._queues(step),
                "seqs": self._seqs(step, entries, done),
                **self._pools(step),
                "cached": step.get("cached", []),
            }
        )

    def _learn(self, tokens: list[int]) -> None:
        before = 0
        for token in tokens:
            before = hash((before, token))
            self.words.setdefault(before, self._word(token))

    def _queues(self, step: Step) -> dict[str, list[str]]:
        there = self.state.unfinished()
        queues = step.get("queues", {})
        found = {
            name: [one for one in queues.get(name, []) if one in there]
            for name in ("waiting", "running", "swapped")
        }
        return found | {"finished": [one for one in self.state.arrived if one not in there]}

    def _seqs(self, step: Step, entries: Mapping[str, Any], done: bool) -> list[dict[str, Any]]:
        known = dict(self.state.seqs)
        names = {one.request for one in known.values()}
        for name in self.state.arrived:
            if name not in names:
                known[name] = Known(name, self.state.prompts[name])
        return [self._seq(name, one, step, entries.get(name), done) for name, one in known.items()]

    def _seq(self, name: str, one: Known, step: Step, entry: Any, done: bool) -> dict[str, Any]:
        on_gpu, on_cpu = step["tables"], step.get("cpu_tables", {})
        table = [] if one.ended else on_gpu.get(name, on_cpu.get(name, []))
        device = "gpu" if name in on_gpu else "cpu"
        status = "running" if device == "gpu" else "swapped"
        found = {
            "name": name,
            "request": one.request,
            "status": "finished" if one.ended else status if table else "waiting",
            "prompt": len(self.state.prompts.get(one.request, [])),
            "words": [self._word(token) for token in one.tokens],
            "computed": entry.end - len(entry.drafts) if entry and done else one.computed,
            "now": [entry.start, entry.end] if entry else [],
            "device": device if table else "",
            "table": table,
        }
        if entry and entry.drafts:
            found["drafts"] = [self._word(token) for token in entry.drafts]
        return found

    def _pools(self, step: Step) -> dict[str, Any]:
        held = Counter(block for table in step["tables"].values() for block in set(table))
        on_cpu = Counter(b for table in step.get("cpu_tables", {}).values() for b in set(table))
        gpu, cpu = self.state.gpu, self.state.cpu
        nobodys = [block for block in range(len(gpu)) if not held[block]]
        return {
            "gpu": self._pool(gpu, step.get("refs") or [held[i] for i in range(len(gpu))]),
            "cpu": self._pool(cpu, step.get("cpu_refs") or [on_cpu[i] for i in range(len(cpu))]),
            "free": step.get("free", nobodys),
        }

    def _pool(self, memory: list[list[int | None]], refs: list[int]) -> list[dict[str, Any]]:
        return [
            {"refs": count, "holds": self._holds(slots) if any(slots) else []}
            for count, slots in zip(refs, memory, strict=True)
        ]

    def _holds(self, slots: list[int | None]) -> list[str | None]:
        return [None if one is None else self.words.get(one, "?") for one in slots]
