"""A target, and beside it what must be true of it: tables, contents, counts, what can be found.

Each demand belongs to a property by its name. When a demand fails, the property that is being
tested is broken if it is its own; otherwise the example ends there with Elsewhere.
"""

from typing import Any

from paged_conformance.block_manager.memory import Key, Pool, Texts, Tracked, copy
from paged_conformance.properties import Broken, Elsewhere, Refused


class World:
    """What is known of a target. `driver.py` operates it."""

    def __init__(self, make: Any, example: Any, subject: str) -> None:
        self.subject = subject
        self.has = frozenset(getattr(make, "capabilities", ()))
        limits: dict[str, int] = getattr(make, "sizes", {})
        self.watermark = limits.get("watermark_blocks", 0)
        self.spare = limits.get("spare_blocks", 0)
        self.size: int = example["block_size"]
        num_swap = example["num_swap_blocks"]
        self.target = make(
            block_size=self.size, num_blocks=example["num_blocks"], num_swap_blocks=num_swap
        )
        self.capacity: int = self.target.capacity()
        self.texts = Texts()
        self.pools = {"gpu": Pool(self.size), "swap": Pool(self.size)}
        self.num_swap: int = self.target.num_free_swap() if "swap" in self.has else 0
        self.live: dict[int, Tracked] = {}
        self.step: list[int] = []
        self.seen: set[int] = set()
        self.known: list[tuple[Key, list[int]]] = []
        self.finished: list[list[int]] = []
        self.families = 0

    def demand(self, subject: str, holds: bool, says: str) -> None:
        if not holds:
            if self.subject in (subject, "*"):
                raise Broken(says if self.subject == subject else f"{subject}: {says}")
            raise Elsewhere(f"{subject}: {says}")

    # What is there

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.size)

    def used(self, place: str = "gpu", but: int | None = None) -> set[int]:
        """The blocks in the tables of one place, perhaps without one sequence's."""
        return {
            block
            for other in self.live.values()
            if other.place == place and other.seq != but
            for block in other.table
        }

    def table(self, seq: int) -> list[int]:
        return list(self.target.table(seq=seq))

    def trace(self) -> Any:
        """All that can be seen of the target: a refused call leaves it as it was."""
        seen: list[Any] = [self.target.num_free()]
        if "swap" in self.has:
            seen.append(self.target.num_free_swap())
        seen += [self.table(seq) for seq in self.live]
        if "match" in self.has:
            seen += [self.match(key, tokens) for key, tokens in self.known[-3:]]
        return seen

    def match(self, key: Key, tokens: list[int]) -> int:
        found: int = self.target.match(tokens=tokens, salt=key[0], adapter=key[1])
        if found >= self.size:
            self.check_match(self.texts.chain(key, tokens), found)
        return found

    def refused(self, before: Any, what: str) -> None:
        self.demand(
            "refusals-leave-no-trace",
            self.trace() == before,
            f"{what} was refused, but it is seen: {before} before, {self.trace()} after",
        )

    # What must hold

    def check(self, counted: bool = True) -> None:
        """After every call: tables stay, hold their tokens, and are counted."""
        for seq in self.live.values():
            now = self.table(seq.seq)
            self.demand(
                "tables-stay",
                now == seq.table,
                f"the table of {seq.seq} was {seq.table} and is {now} after another's call",
            )
            self.check_contents(seq)
        if counted:
            self.check_counts()

    def check_counts(self) -> None:
        used, free = len(self.used()), self.target.num_free()
        exact = free == self.capacity - used
        fits = free <= self.capacity - used if "lazy" in self.has else exact
        self.demand(
            "counts",
            fits and free >= 0,
            f"{free} blocks are free and {used} in use, of {self.capacity}",
        )
        if "swap" in self.has:
            used, free = len(self.used("swap")), self.target.num_free_swap()
            self.demand(
                "counts",
                free == self.num_swap - used,
                f"{free} swap blocks are free and {used} in use, of {self.num_swap}",
            )

    def check_contents(self, seq: Tracked) -> None:
        held, chain = self.pools[seq.place].read_all(seq.table)[: seq.end], seq.chain[: seq.end]
        if held == chain:
            return  # there is nothing to say, and this is asked for after each call
        position = next(place for place in range(seq.end) if held[place] != chain[place])
        block, slot = seq.table[position // self.size], position % self.size
        self.demand(
            "contents",
            False,
            f"slot {slot} of block {block} should hold token {position} of sequence {seq.seq}, "
            f"{seq.tokens[: position + 1]}, and holds another's, or nothing",
        )

    def check_length(self, seq: Tracked) -> None:
        least = self.blocks_for(seq.end + len(seq.guesses))
        most = self.blocks_for(max(seq.reach, len(seq.tokens))) + self.spare
        self.demand(
            "tables-are-long-enough",
            least <= len(seq.table) <= most,
            f"sequence {seq.seq} has {len(seq.table)} blocks of {self.size} for {seq.end} tokens "
            f"and {len(seq.guesses)} guesses, of {len(seq.tokens)} known ones",
        )

    def check_fresh(self, seq: Tracked, blocks: list[int], place: str = "gpu") -> None:
        """These blocks were just handed out to a sequence."""
        others = self.used(place, but=seq.seq) & set(blocks)
        self.demand(
            "blocks-have-one-owner",
            not others and len(set(seq.table)) == len(seq.table),
            f"sequence {seq.seq} was given {blocks} and has the table {seq.table}; others "
            f"hold {sorted(others)} already",
        )
        if place == "gpu":
            self.seen |= set(blocks)
            self.demand(
                "counts",
                len(self.seen) <= self.capacity,
                f"{len(self.seen)} different blocks were handed out, of {self.capacity}",
            )

    def take(self, seq: Tracked, blocks: list[int]) -> None:
        """A sequence takes free blocks, in this order."""
        pool = self.pools["gpu"]
        for block in blocks:
            older = pool.older_than(block) if "lru" in self.has else []
            self.demand(
                "the-oldest-goes-first",
                not older,
                f"block {block} was handed out, and what it held is lost; {older} hold cached "
                "texts too and have been free for longer",
            )
            text = pool.read(block, self.size - 1)
            if text in seq.chain:
                # Its own copy, if it has one already, may be unknown beside the one that goes now.
                place = seq.table.index(block) if block in seq.table else len(seq.table)
                seq.alone = seq.alone and seq.chain.index(text) // self.size >= place
            pool.take(block)
        if blocks:
            self.finished.clear()
            for other in self.live.values():
                other.alone = other.alone and other is seq

    def write(self, seq: Tracked) -> None:
        """The step writes the tokens from start to end, and the guesses."""
        self.check_length(seq)
        guessed = self.texts.chain(seq.key, seq.guesses, seq.chain[-1]) if seq.guesses else []
        first, last = seq.start // self.size, self.blocks_for(seq.end + len(guessed))
        others = self.used(but=seq.seq) & set(seq.table[first:last])
        self.demand(
            "writes-are-to-own-blocks",
            not others,
            f"sequence {seq.seq} writes positions {seq.start} to {seq.end + len(guessed) - 1}, "
            f"in blocks {sorted(others)} that others hold, too",
        )
        pool = self.pools["gpu"]
        pool.write(seq.seq, seq.table, seq.start, seq.chain[seq.start : seq.end] + guessed)
        if seq.caching:
            for index in range(seq.num_offered, seq.end // self.size):
                pool.offer(seq.table[index], seq.chain[(index + 1) * self.size - 1])
        seq.num_offered = max(seq.num_offered, seq.end // self.size)
        seq.in_step = True
        self.step.append(seq.seq)

    # What can be found

    def check_hit_length(self, hit: int, num_tokens: int) -> None:
        caches = "prefix_cache" in self.has
        self.demand(
            "hits-are-whole-blocks",
            hit >= 0 and hit % self.size == 0 and hit < num_tokens and (caches or not hit),
            f"{hit} of {num_tokens} tokens were found, with blocks of {self.size}: one token at "
            "least must be computed, and only whole blocks are found",
        )

    def check_hit(self, chain: list[int], table: list[int], hit: int) -> None:
        """The blocks that were found hold, or are going to hold in this step, these texts."""
        pool = self.pools["gpu"]
        for position in range(hit):
            block, slot = table[position // self.size], position % self.size
            if pool.read(block, slot) == chain[position]:
                continue
            late = (block, chain[position]) in pool.dropped or any(
                other.table[position // self.size : position // self.size + 1] == [block]
                and other.chain[position : position + 1] == [chain[position]]
                for other in self.live.values()
            )
            self.demand(
                "hits-are-computed" if late else "hits-are-equal-texts",
                False,
                f"block {block} was found for tokens {position // self.size * self.size} to "
                f"{position // self.size * self.size + self.size - 1} of a prompt, and in its slot "
                f"{slot} is no such token{', since it has not been computed' if late else ''}",
            )

    def check_match(self, chain: list[int], found: int) -> None:
        """There are blocks that hold what a look found."""
        pool = self.pools["gpu"]
        held = {tuple(slots) for slots in pool.slots.values()}
        for start in range(0, min(found, len(chain)) // self.size * self.size, self.size):
            part = chain[start : start + self.size]
            if tuple(part) in held:
                continue
            late = any(text in part for _, text in pool.dropped) or any(
                other.chain[start : start + self.size] == part for other in self.live.values()
            )
            self.demand(
                "hits-are-computed" if late else "hits-are-equal-texts",
                False,
                f"{found} tokens of a prompt would be found, and no block holds tokens {start} to "
                f"{start + self.size - 1}{', since they have not been computed' if late else ''}",
            )

    def must_find(self, chain: list[int]) -> tuple[int, str]:
        """How many tokens a cache must find, and why."""
        if "prefix_cache" not in self.has:
            return 0, ""
        most = (len(chain) - 1) // self.size
        found, why = 0, ""
        for other in self.finished if "keeps" in self.has else []:
            equal = sum(1 for a, b in zip(chain, other, strict=False) if a == b)
            if min(most, equal // self.size) > found:
                found, why = min(most, equal // self.size), "nobody has taken a block since"
        if "exact_hits" in self.has:
            pool, count = self.pools["gpu"], 0
            while count < most:
                block = pool.primary.get(chain[(count + 1) * self.size - 1])
                if block is None or pool.is_pending(block):
                    break
                count += 1
            if count > found:
                found, why = count, "their blocks were not handed out since"
        return found * self.size, why

    def check_found(self, chain: list[int], hit: int) -> None:
        must, why = self.must_find(chain)
        self.demand(
            "what-is-there-is-found",
            hit >= must,
            f"{hit} tokens of a prompt were found; {must} are there: {why}",
        )

    # Moves

    def check_copies(self, seq: Tracked, pairs: list[list[int]], before: list[int]) -> None:
        """Copies of a write or a fork: from what the table had, to what it has, once each."""
        changed = [[old, new] for old, new in zip(before, seq.table, strict=False) if old != new]
        self.demand(
            "copies-are-what-changed",
            sorted(map(list, pairs)) == sorted(changed),
            f"sequence {seq.seq} had the blocks {before} and has {seq.table}; the copies are "
            f"{pairs}",
        )
        self.check_fresh(seq, [new for _, new in changed])
        self.take(seq, [new for _, new in changed])
        copy(self.pools["gpu"], self.pools["gpu"], pairs)

    def call(self, what: str, **arguments: Any) -> Any:
        """A call that may be refused; None then, and it has left no trace."""
        before = self.trace()
        try:
            return getattr(self.target, what)(**arguments)
        except Refused:
            self.refused(before, f"{what} {arguments}")
            return None
