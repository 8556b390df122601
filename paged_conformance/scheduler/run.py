"""Drives one target through a history, and holds each of its plans to the contract.

A rule that breaks is raised with its subject. A property is about some of the subjects; a rule of
another one ends its example, which then does not count.
"""

from collections import deque
from collections.abc import Collection
from typing import Any

from paged_conformance.properties import Refused
from paged_conformance.scheduler.memory import Memory
from paged_conformance.scheduler.protocol import Plan
from paged_conformance.scheduler.saying import after
from paged_conformance.scheduler.sequences import Request, Sequence, fits

SUBJECTS = (
    "order", "limits", "rows", "memory", "cache", "progress", "ends", "first-come", "priority",
    "left", "refusal",
)  # fmt: skip
PADDING = -1  # a draft that is never right
Row = dict[str, Any]


class Breach(Exception):
    """A rule was broken."""

    def __init__(self, subject: str, says: str) -> None:
        super().__init__(says)
        self.subject = subject


class Run:
    """One target and what is known of its requests.

    Args:
        make: Makes targets.
        words: The target's capabilities.
        example: As `histories` draws it.
        with_bad: Whether bad requests of the history are tried; else they are passed over.
    """

    def __init__(
        self, make: Any, words: Collection[str], example: dict[str, Any], with_bad: bool = True
    ) -> None:
        self.sizes, self._words, self._with_bad = example["sizes"], words, with_bad
        self.target = make(**self.sizes)
        self._history = example["history"]
        self.live: dict[str, Request] = {}
        self._flying: deque[tuple[Plan, list[tuple[Row, Sequence]]]] = deque()
        self._memory = Memory(self.sizes["block_size"])
        self._num_added = self._num_idle = 0
        self._computed_ever: set[Any] = set()
        self.plans: list[list[list[Any]]] = []
        self._most_idle = int(getattr(make, "sizes", {}).get("empty_steps", 2))

    def all(self) -> None:
        """The whole history, then steps until all requests have ended."""
        for operation in self._history:
            getattr(self, "_" + operation["op"])(operation)
            self._look()
        self.drain()

    def drain(self) -> None:
        total = sum(request.most_tokens for request in self.live.values())
        for _ in range(50 + total * (2 + len(self.live))):
            if not self.live and not self._flying:
                break
            self._step({})
            self._look()
        names = sorted(self.live)
        self._must(not names, "progress", f"requests {names} do not end, however many steps follow")
        self._step({})  # a last one frees what is freed lazily
        if "state" in self._words:
            state = self.target.state()
            free, total = state["free_blocks"], state["num_blocks"]
            self._must(
                free == total, "left", f"all requests have ended, {free} of {total} blocks are free"
            )

    # Operations of a history.

    def _add(self, operation: dict[str, Any]) -> None:
        asked = operation["request"]
        flying = {entry.request.id for _, rows in self._flying for _, entry in rows}
        taken = asked["id"] in self.live
        bad = taken or not fits(asked, self.sizes)
        if bad and ("admission" not in self._words or not self._with_bad):
            return
        if asked["id"] in flying and not taken:
            return  # the tokens on their way to the old one would be taken for the new one's
        if "model_len" not in self._words:
            room = self.sizes["max_model_len"] - len(asked["prompt"])
            asked = {**asked, "max_tokens": min(asked["max_tokens"], room)}
        try:
            self.target.add(**asked, arrival=self._num_added)
        except Refused as error:
            self._must(bad, "refusal", f"request {asked['id']!r} fits and was refused: {error}")
            return
        self._must(not taken, "refusal", f"a second request {asked['id']!r} was accepted")
        valid = 0 < len(asked["prompt"]) < self.sizes["max_model_len"]
        self._must(valid, "refusal", f"a prompt of {len(asked['prompt'])} tokens was accepted")
        self.live[asked["id"]] = Request(asked, self._num_added, self.sizes["max_model_len"])
        self._num_added += 1

    def _abort(self, operation: dict[str, Any]) -> None:
        if "aborts" not in self._words:
            return
        names = [*sorted(self.live), "nobody"]
        name = names[operation["which"] % len(names)]
        for _ in range(operation["times"]):
            self.target.abort(id=name)
        request = self.live.pop(name, None)
        if request is not None:
            request.ended = True
            for sequence in request.sequences.values():
                sequence.ended = True

    def _step(self, operation: dict[str, Any]) -> None:
        if not self._flying:
            self._plan(operation)
        self._land(operation)

    def _plan(self, operation: dict[str, Any]) -> None:
        """Plans a step; where plans may be ahead of tokens, up to two of them are in flight."""
        ahead = "ahead" in self._words and self.sizes["ahead"]
        drafted = any(row.get("drafts") for _, rows in self._flying for row, _ in rows)
        if len(self._flying) > (1 if ahead and not drafted else 0):
            return
        offered = self._offers(operation.get("drafts") or [])
        plan = self.target.schedule(drafts=offered)
        waiting = [one for one in self.live.values() if not one.started]
        rows = self._rows(plan)
        self.plans.append([[row["id"], row.get("sample", 0), row["start"], row["tokens"]]
                           for row, _ in rows])  # fmt: skip
        self._preempt(plan, rows)
        self._order_of_service(waiting, plan, rows)
        for row, sequence in rows:
            self._positions(row, sequence, offered)
        self._limits(rows)
        if "tables" in self._words:
            self._memory_of(plan, rows)
        else:
            self._hits_without_tables(rows)
        for row, sequence in rows:
            self._count(row, sequence)
        self._flying.append((plan, rows))
        self._idle(rows)

    def _land(self, operation: dict[str, Any]) -> None:
        """The tokens of the oldest step that is planned."""
        if not self._flying:
            return
        _, rows = self._flying.popleft()
        drawn = [
            {"id": row["id"], "sample": one.sample, "tokens": tokens, "row": row.get("sample", 0)}
            for row, sequence in rows
            for one, tokens in self._drawn(row, sequence)
        ]
        ended = self.target.update(tokens=drawn)
        expected: dict[tuple[str, int], Sequence] = {}
        for row, sequence in rows:
            sequence.request.num_in_flight -= 1
            for one, tokens in self._drawn(row, sequence):
                if not one.ended:
                    self._take(one, tokens, row)
                    if one.ended:
                        expected[one.request.id, one.sample] = one
        told = {(one["id"], one.get("sample", 0)): one for one in ended}
        for key in expected.keys() - told.keys():
            sequence = expected[key]
            why = " and ".join(sorted(sequence.reasons()))
            self._breach("ends", f"sequence {sequence.name} must end ({why}) and goes on")
        for key in told.keys() - expected.keys():
            self._breach("ends", f"request {key[0]!r}, sample {key[1]}, ended, and must go on")
        for key, one in told.items():
            self._how_it_ended(expected[key], one)
        for request in list(self.live.values()):
            if all(one.ended for one in request.sequences.values()):
                request.ended = True
                del self.live[request.id]

    # Rules about one plan.

    def _rows(self, plan: Plan) -> list[tuple[Row, Sequence]]:
        rows, seen = [], set()
        for row in plan["rows"]:
            key = row["id"], row.get("sample", 0)
            request = self.live.get(row["id"])
            self._must(
                request is not None, "rows",
                f"the step has a row of {row['id']!r}, of which no request is unfinished",
            )  # fmt: skip
            assert request is not None
            sequence = request.sequences.get(key[1])
            self._must(
                sequence is not None and not sequence.ended, "rows",
                f"the step has a row of {row['id']!r}, sample {key[1]}, which has ended",
            )  # fmt: skip
            assert sequence is not None
            self._must(key not in seen, "rows", f"the step has two rows of {sequence.name}")
            seen.add(key)
            rows.append((row, sequence))
        return rows

    def _preempt(self, plan: Plan, rows: list[tuple[Row, Sequence]]) -> None:
        here = {row["id"] for row, _ in rows}
        for one in plan.get("preempted") or []:
            name = one["id"]
            request = self.live.get(name)
            self._must(request is not None, "rows", f"{name!r}, which has ended, was preempted")
            assert request is not None
            self._must(
                name not in here, "rows",
                f"{name!r} was preempted in this step, which still has a row of it",
            )  # fmt: skip
            for sequence in request.sequences.values():
                if one.get("how", "recompute") == "recompute":
                    sequence.fresh = True

    def _order_of_service(
        self, waiting: list[Request], plan: Plan, rows: list[tuple[Row, Sequence]]
    ) -> None:
        here = {row["id"]: sequence.request for row, sequence in rows}
        first = [one for one in here.values() if not one.started]
        left = [one for one in waiting if one.id not in here]
        for request in here.values():
            request.started = True
        if self.sizes["max_adapters"]:
            return  # who waits for a slot may be overtaken
        if self.sizes["policy"] == "fcfs" and "fcfs" in self._words:
            for one in first:
                for older in left:
                    self._must(
                        older.number > one.number, "first-come",
                        f"{one.id!r} starts before {older.id!r}, which came first",
                    )  # fmt: skip
        if self.sizes["policy"] == "priority" and "priorities" in self._words:
            for one in first:
                for other in left:
                    self._must(
                        other.urgency > one.urgency, "priority",
                        f"{one.id!r} (priority, number {one.urgency}) starts before {other.id!r}, "
                        f"which is more urgent ({other.urgency})",
                    )  # fmt: skip
            for victim in plan.get("preempted") or []:
                request = self.live[victim["id"]]
                for other in here.values():
                    self._must(
                        other.urgency < request.urgency, "priority",
                        f"{request.id!r} (priority, number {request.urgency}) was preempted in a "
                        f"step with {other.id!r}, which is less urgent ({other.urgency})",
                    )  # fmt: skip

    def _positions(self, row: Row, sequence: Sequence, offered: list[dict[str, Any]]) -> None:
        """Which positions a row computes, and whether it draws."""
        start, num_tokens, drafts = row["start"], row["tokens"], row.get("drafts") or []
        name, length, end = sequence.name, sequence.length, row["start"] + row["tokens"]
        self._must(num_tokens >= 1, "order", f"a row of {name} has {num_tokens} tokens")
        if not sequence.fresh:
            self._must(
                start == sequence.computed, "order",
                f"a row of {name} starts at {start}; {sequence.computed} positions are computed",
            )  # fmt: skip
        elif start:
            may = {"prefix_cache", "samples"} & set(self._words)
            self._must(
                start > 0 and bool(may), "order",
                f"the first row of {name} starts at {start}; nothing of it is computed",
            )  # fmt: skip
            self._must(
                start < length, "cache",
                f"all {length} tokens of {name} are taken from the cache; the last one must be "
                "computed, since a token is drawn behind it",
            )  # fmt: skip
        known = "" if not sequence.pending else f" ({sequence.pending} of them not known yet)"
        self._must(
            end <= length + len(drafts), "order",
            f"a row of {name} computes positions {start} to {end - 1}; it has {length} tokens"
            f"{known} and {len(drafts)} drafts",
        )  # fmt: skip
        if drafts:
            given = [
                one["tokens"]
                for one in offered
                if one["id"] == row["id"] and one["sample"] == sequence.sample
            ]
            real = [draft for draft in drafts if draft != PADDING]
            same = not real or (bool(given) and given[0][: len(real)] == real)
            self._must(same, "order", f"drafts {drafts} of {name} are not those given: {given}")
            self._must(
                end == length + len(drafts), "order",
                f"a row of {name} has drafts, and does not reach them: it ends at {end}, the "
                f"sequence has {length} tokens and {len(drafts)} drafts",
            )  # fmt: skip
            most = sequence.request.max_model_len
            self._must(
                length + len(real) <= max(most, length), "order",
                f"a row of {name} reaches position {end - 1}; it has at most {most} tokens",
            )  # fmt: skip
        if not self.sizes["chunked"]:
            self._must(
                end >= length, "order",
                f"a row of {name} ends at {end} of {length} tokens, and prompts are not chunked",
            )  # fmt: skip
        draws = row.get("draws")
        if draws is not None:
            self._must(
                (draws > 0) == (end >= length), "order",
                f"a row of {name} ends at {end} of {length} tokens and draws {draws}",
            )  # fmt: skip

    def _limits(self, rows: list[tuple[Row, Sequence]]) -> None:
        sizes = self.sizes
        total = sum(row["tokens"] for row, _ in rows)
        most = sizes["max_num_batched_tokens"]
        self._must(total <= most, "limits", f"the step has {total} tokens, at most {most} may be")
        most = sizes["max_num_seqs"]
        self._must(
            len(rows) <= most,
            "limits",
            f"the step has {len(rows)} sequences, at most {most} may be",
        )
        if sizes["max_adapters"]:
            names = {sequence.request.asked["adapter"] for _, sequence in rows} - {0}
            most = sizes["max_adapters"]
            self._must(
                len(names) <= most,
                "limits",
                f"the step has adapters {names}, at most {most} may be",
            )

    def _memory_of(self, plan: Plan, rows: list[tuple[Row, Sequence]]) -> None:
        """Carries out the plan in the shadow of the cache, then reads what each row reads."""
        size, most = self.sizes["block_size"], self.sizes["num_blocks"]
        self._memory.move(plan)
        for row, sequence in rows:
            table, end, name = row["table"], row["start"] + row["tokens"], sequence.name
            self._must(
                len(table) * size >= end, "memory",
                f"{name} has {len(table)} blocks of {size}, its row ends at position {end}",
            )  # fmt: skip
            used = table[: -(-end // size)]
            self._must(len(set(used)) == len(used), "memory", f"{name} has a block twice: {table}")
            outside = [block for block in used if not 0 <= block < most]
            self._must(not outside, "memory", f"{name} has blocks {outside}, there are {most}")
            for position, digest in enumerate(self._digests(row, sequence)):
                if position >= row["start"]:
                    alone = self._memory.write(table, position, digest)
                    self._must(
                        alone, "memory",
                        f"{name} writes position {position} to block {table[position // size]}, "
                        "where another row of this step writes something else",
                    )  # fmt: skip
        for row, sequence in rows:
            for position, digest in enumerate(self._digests(row, sequence)):
                if self._memory.read(row["table"], position) != digest:
                    self._wrong_content(row, sequence, position)

    def _wrong_content(self, row: Row, sequence: Sequence, position: int) -> None:
        block = row["table"][position // self.sizes["block_size"]]
        hit = sequence.fresh and position < row["start"]
        how = "takes from the cache" if hit else "reads"
        self._breach(
            "cache" if hit else "memory",
            f"{sequence.name} {how} position {position} in block {block}, which does not hold the "
            "keys and values of its tokens",
        )

    def _digests(self, row: Row, sequence: Sequence) -> list[int]:
        """What each position up to the row's end must hold; drafts as they were guessed."""
        drafts = row.get("drafts") or []
        behind = row["start"] + row["tokens"] - len(drafts)
        digests = [sequence.said.digest(length) for length in range(1, behind + 1)]
        for token in drafts:
            digests.append(after(digests[-1], token))
        return digests

    def _hits_without_tables(self, rows: list[tuple[Row, Sequence]]) -> None:
        """A hit is as long as what some sequence has computed, at most."""
        for row, sequence in rows:
            end = row["start"] + row["tokens"]
            self._computed_ever |= set(self._digests(row, sequence)[row["start"] : end])
        for row, sequence in rows:
            if sequence.fresh and row["start"]:
                known = sequence.said.digest(row["start"]) in self._computed_ever
                self._must(
                    known, "cache",
                    f"the first row of {sequence.name} starts at {row['start']}; nobody has "
                    "computed these tokens",
                )  # fmt: skip

    # Bookkeeping.

    def _count(self, row: Row, sequence: Sequence) -> None:
        """A plan counts as computed, but for its drafts."""
        end = row["start"] + row["tokens"] - len(row.get("drafts") or [])
        row["length"] = sequence.length
        row["reaches"] = end >= sequence.length
        sequence.fresh, sequence.planned, sequence.computed = False, True, end
        sequence.request.num_in_flight += 1
        if not row["reaches"]:
            return
        for one in self._drawing(row, sequence):
            one.pending += 1
            if one is not sequence:
                one.computed, one.fresh, one.planned = end, False, True
                one.known = sequence.known

    def _drawing(self, row: Row, sequence: Sequence) -> list[Sequence]:
        """The sequences that get a token of this row: more than one where a request forks."""
        first, draws = sequence.sample, row.get("draws", 1)
        return [sequence.request.sequences[first + i] for i in range(draws)]

    def _drawn(self, row: Row, sequence: Sequence) -> list[tuple[Sequence, list[int]]]:
        if not row["reaches"]:
            return []
        drawn = []
        for one in self._drawing(row, sequence):
            tokens = [one.said.token(row["length"])]
            for draft in row.get("drafts") or []:
                if draft != tokens[-1]:
                    break
                tokens.append(one.said.token(row["length"] + len(tokens)))
            drawn.append((one, tokens))
        return drawn

    def _take(self, sequence: Sequence, tokens: list[int], row: Row) -> None:
        sequence.pending -= 1
        for number, _ in enumerate(tokens):
            sequence.known += 1
            if number and not sequence.fresh:
                sequence.computed += 1
            if sequence.reasons():
                sequence.ended = True
                return

    def _how_it_ended(self, sequence: Sequence, told: dict[str, Any]) -> None:
        reason = told.get("reason")
        if reason is not None:
            may = sequence.reasons()
            self._must(
                reason in may, "ends", f"{sequence.name} ended as {reason!r}, not as {sorted(may)}"
            )
        if told.get("tokens") is not None:
            start = len(sequence.request.asked["prompt"])
            own = sequence.said.tokens(start, sequence.known)
            self._must(
                told["tokens"] == own, "ends",
                f"the output of {sequence.name} is {told['tokens']}; it was given {own}",
            )  # fmt: skip

    def _offers(self, wishes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Guesses for sequences that have all but their last token computed."""
        if "drafts" not in self._words or not self.sizes["max_drafts"] or self._flying:
            return []
        ready = [
            one
            for request in self.live.values()
            for one in request.sequences.values()
            if one.planned and not one.ended and one.known > len(request.asked["prompt"])
        ]
        offers = []
        for sequence, wish in zip(ready, wishes, strict=False):
            right = sequence.said.tokens(sequence.known, sequence.known + wish["right"])
            wrong = [(sequence.said.token(sequence.known + wish["right"]) + 1) % 6] * wish["wrong"]
            tokens = (right + wrong)[: self.sizes["max_drafts"]]
            if tokens:
                name, sample = sequence.request.id, sequence.sample
                offers.append({"id": name, "sample": sample, "tokens": tokens})
        return offers

    def _idle(self, rows: list[tuple[Row, Sequence]]) -> None:
        moving = len(self._flying) > 1 or bool(rows) or not self.live
        self._num_idle = 0 if moving else self._num_idle + 1
        self._must(
            self._num_idle <= self._most_idle, "progress",
            f"{self._num_idle} steps after each other are empty, and {sorted(self.live)} wait",
        )  # fmt: skip

    def _look(self) -> None:
        """After each operation: the target's own view of who is there."""
        if "state" in self._words:
            names = sorted(self.target.state()["unfinished"])
            self._must(
                names == sorted(self.live), "left",
                f"the scheduler holds requests {names}; unfinished are {sorted(self.live)}",
            )  # fmt: skip

    def _must(self, holds: bool, subject: str, says: str) -> None:
        if not holds:
            raise Breach(subject, says)

    def _breach(self, subject: str, says: str) -> None:
        raise Breach(subject, says)
