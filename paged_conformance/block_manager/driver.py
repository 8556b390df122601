"""Carries out a history on a target, and says what each call must have done."""

from contextlib import suppress
from typing import Any

from paged_conformance.block_manager.memory import Key, Tracked, copy
from paged_conformance.block_manager.world import World
from paged_conformance.properties import Refused


def run(make: Any, example: Any, subject: str) -> None:
    """Raises Broken if the history breaks the property `subject`, Elsewhere if it breaks another.

    Whatever the target raises is passed on.
    """
    driver = Driver(make, example, subject)
    driver.check()
    for name, *arguments in example["ops"]:
        getattr(driver, f"do_{name}")(*arguments)
    driver.end()


class Driver(World):
    """The operations by name. One that does not apply is passed over."""

    def pick(self, which: int, place: str = "gpu", idle: bool = True) -> Tracked | None:
        fit = [s for s in self.live.values() if s.place == place and not (idle and s.in_step)]
        return fit[which % len(fit)] if fit else None

    def unused(self) -> int:
        return next(seq for seq in range(10_000) if seq not in self.live)

    def text(self, prompt: Any) -> tuple[Key, list[int]]:
        which, skipped, num_blocks, num_tokens, more, salt, adapter = prompt
        base = self.known[which % len(self.known)][1] if which >= 0 and self.known else []
        base = base[skipped * self.size :]
        tokens = [*base[: num_blocks * self.size + num_tokens], *more][: 4 * self.size + 3]
        return (salt, adapter), tokens or [0]

    def do_open(self, prompt: Any, chunk: int) -> Tracked | None:
        key, tokens = self.text(prompt)
        return self.open(key, tokens, chunk)

    def open(
        self, key: Key, tokens: list[int], chunk: int, refusal: str = "what-fits-is-taken"
    ) -> Tracked | None:
        """Opens a sequence; `refusal` is the property that one breaks which is not called for."""
        seq = Tracked(self.unused(), key, list(tokens), self.texts.chain(key, tokens), 0)
        chunk = chunk if "chunks" in self.has else len(tokens)
        self.known = [*(pair for pair in self.known if pair != (key, tokens)), (key, tokens)][-6:]
        free, used = self.target.num_free(), len(self.used())
        expected = self.match(key, tokens) if "match" in self.has else None
        salt, adapter = key
        got = self.call("open", seq=seq.seq, tokens=tokens, chunk=chunk, salt=salt, adapter=adapter)
        if got is None:
            self.demand(
                refusal,
                self.blocks_for(len(tokens)) + self.watermark > free,
                f"{len(tokens)} tokens were refused, with blocks of {self.size} and {free} free",
            )
            self.demand(
                "refusals-leave-no-trace",
                self.table(seq.seq) == [],
                f"sequence {seq.seq} was refused and has the table {self.table(seq.seq)}",
            )
            self.check()
            return None
        hit: int = got["hit"]
        self.check_hit_length(hit, len(tokens))
        seq.table = self.table(seq.seq)
        seq.start, seq.end = hit, min(len(tokens), hit + chunk)
        seq.reach, seq.num_offered = len(tokens), hit // self.size
        self.check_length(seq)
        self.check_hit(seq.chain, seq.table, hit)
        self.check_found(seq.chain, hit)
        self.demand(
            "match-says-what-open-finds",
            expected is None or expected == hit,
            f"match said {expected} tokens of {tokens} and open found {hit}",
        )
        fresh = seq.table[hit // self.size :]
        for block in seq.table[: hit // self.size]:
            self.pools["gpu"].touch(block)
        self.check_fresh(seq, fresh)
        self.demand(
            "what-fits-is-taken",
            used + len(set(fresh)) <= self.capacity,
            f"{used} blocks were in use, and {len(fresh)} more were handed out",
        )
        self.families += 1
        seq.family = self.families
        self.live[seq.seq] = seq
        self.take(seq, fresh)
        self.write(seq)
        self.check()
        return seq

    def do_extend(self, which: int, chunk: int, tokens: list[int]) -> None:
        seq = self.pick(which)
        if seq is not None:
            self.extend(seq, chunk, tokens, [])

    def do_guess(self, which: int, token: int, guesses: list[int], right: int) -> None:
        seq = self.pick(which)
        if seq is not None and seq.end == len(seq.tokens):
            self.extend(seq, 1, [token], guesses)
            seq.num_accepted = min(right, len(guesses)) if seq.in_step else 0

    def extend(self, seq: Tracked, chunk: int, tokens: list[int], guesses: list[int]) -> bool:
        if seq.end < len(seq.tokens):
            tokens, guesses = [], []
            chunk = min(chunk, len(seq.tokens) - seq.end)
        else:
            chunk = len(tokens)
        before, free = list(seq.table), self.target.num_free()
        end = seq.end + chunk
        last_block = self.blocks_for(end + len(guesses))
        written = before[seq.end // self.size : last_block]
        need = max(0, last_block - len(before)) + len(self.used(but=seq.seq) & set(written))
        pairs = self.call("extend", seq=seq.seq, tokens=tokens, chunk=chunk, guesses=guesses)
        if pairs is None:
            self.demand(
                "what-fits-is-taken",
                need > free,
                f"sequence {seq.seq} was refused {need} blocks, and {free} are free",
            )
            self.check()
            return False
        last = seq.chain[-1]
        seq.tokens += tokens
        seq.chain += self.texts.chain(seq.key, tokens, last)
        seq.start, seq.end, seq.guesses = seq.end, end, list(guesses)
        seq.reach = max(seq.reach, len(seq.tokens) + len(guesses))
        seq.table = self.table(seq.seq)
        self.check_length(seq)
        self.demand(
            "tables-stay",
            seq.table[: seq.start // self.size] == before[: seq.start // self.size],
            f"sequence {seq.seq} had {before}, has {seq.table}, and writes from {seq.start} on",
        )
        self.check_copies(seq, pairs, before)
        fresh = seq.table[len(before) :]
        self.check_fresh(seq, fresh)
        self.take(seq, fresh)
        self.write(seq)
        self.check()
        return True

    def do_step(self, aborted: list[int]) -> None:
        """The step runs; some sequences are aborted while it does."""
        for which in aborted:
            if self.step:
                seq = self.live[self.step[which % len(self.step)]]
                self.pools["gpu"].unsure(seq.seq)
                self.free(seq)
        seqs = [self.live[seq] for seq in self.step]
        self.target.computed(seqs=self.step, accepted=[s.num_accepted for s in seqs])
        self.step = []
        for seq in seqs:
            if seq.num_accepted:
                right = seq.guesses[: seq.num_accepted]
                seq.chain += self.texts.chain(seq.key, right, seq.chain[-1])
                seq.tokens += right
                seq.end += len(right)
            seq.in_step, seq.start = False, seq.end
            seq.guesses, seq.num_accepted = [], 0
        self.pools["gpu"].pending.clear()
        self.after_step(seqs)

    def after_step(self, seqs: list[Tracked]) -> None:
        for seq in self.live.values() if "remaps" in self.has else seqs:
            before, seq.table = seq.table, self.table(seq.seq)
            kept = min(len(before), len(seq.table))
            self.check_length(seq)
            self.demand(
                "tables-stay",
                "remaps" in self.has or seq.table == before[:kept],
                f"sequence {seq.seq} had {before} and has {seq.table} after the step",
            )
            self.pools["gpu"].note_freed(reversed(before[kept:]), self.used())
        self.check()
        if "lazy" in self.has:
            free, used = self.target.num_free(), len(self.used())
            self.demand(
                "counts",
                free == self.capacity - used,
                f"after a step {free} blocks are free and {used} in use, of {self.capacity}",
            )

    def do_turn(self, chunk: int, token: int) -> None:
        """Everybody computes a token or a chunk; the youngest makes room where there is none."""
        for seq in list(self.live.values()):
            if self.live.get(seq.seq) is not seq or seq.in_step or seq.place != "gpu":
                continue
            if not self.extend(seq, chunk, [token], []):
                victims = [s for s in self.live.values() if not s.in_step and s.place == "gpu"]
                self.free(victims[-1])
                if victims[-1] is not seq:
                    self.extend(seq, chunk, [token], [])
        self.do_step([])

    def do_free(self, which: int) -> None:
        seq = self.pick(which) or self.pick(which, "swap")
        if seq is not None:
            self.free(seq)

    def do_unschedule(self, which: int) -> None:
        """A sequence makes room for another after it was scheduled: it leaves the step."""
        if self.step:
            seq = self.live[self.step[which % len(self.step)]]
            self.pools["gpu"].unwrite(seq.seq)
            self.free(seq)

    def free(self, seq: Tracked) -> None:
        self.target.free(seq=seq.seq)
        del self.live[seq.seq]
        if seq.seq in self.step:
            self.step.remove(seq.seq)
        self.known = [*self.known, (seq.key, list(seq.tokens))][-6:]
        if seq.alone and seq.caching:
            self.finished.append(seq.chain[: seq.start if seq.in_step else seq.end])
        pool = self.pools[seq.place]
        pool.note_freed(reversed(seq.table), self.used(seq.place))
        for position in range(seq.end, min(len(seq.chain), len(seq.table) * self.size)):
            pool.dropped.add((seq.table[position // self.size], seq.chain[position]))
        self.demand(
            "ends-are-clean",
            self.table(seq.seq) == [],
            f"sequence {seq.seq} was freed and has the table {self.table(seq.seq)}",
        )
        self.check()

    def do_free_again(self, seq: int) -> None:
        if seq not in self.live:
            before = self.trace()
            with suppress(Refused):
                self.target.free(seq=seq)
            self.demand(
                "ends-are-clean",
                self.trace() == before,
                f"{seq} is no sequence (any more) and was freed: {before} before, "
                f"{self.trace()} after",
            )
            self.check()

    def do_match(self, prompt: Any) -> None:
        key, tokens = self.text(prompt)
        before = self.trace()
        found = self.match(key, tokens)
        self.check_hit_length(found, len(tokens))
        self.check_found(self.texts.chain(key, tokens), found)
        again = self.match(key, tokens)
        self.demand(
            "match-says-what-open-finds",
            found == again and self.trace() == before,
            f"a look at {tokens} changed something: {found}, then {again} tokens are found",
        )
        self.check()

    def do_fork(self, which: int) -> None:
        parent = self.pick(which)
        if parent is None or parent.end == 0:
            return
        child = Tracked(**{**vars(parent), "seq": self.unused()})
        child.tokens, child.chain = list(parent.tokens), list(parent.chain)
        child.guesses, child.alone, parent.alone = [], False, False
        most = len(parent.table) - parent.end // self.size
        pairs = self.call("fork", parent=parent.seq, child=child.seq)
        if pairs is None:
            self.demand(
                "what-fits-is-taken",
                most > self.target.num_free(),
                f"a fork was refused, and {self.target.num_free()} blocks are free; all but "
                f"{most} of {parent.table} can be shared",
            )
            return
        child.table = self.table(child.seq)
        least = self.blocks_for(child.end)
        self.demand(
            "forks-share",
            len(child.table) >= least
            and child.table[: child.end // self.size] == parent.table[: child.end // self.size],
            f"sequence {parent.seq} has the blocks {parent.table}, its fork {child.table}",
        )
        self.live[child.seq] = child
        self.check_copies(child, pairs, parent.table)
        self.check()

    def do_swap(self, which: int) -> None:
        """Moves a whole family, out or in."""
        seq = self.pick(which, "gpu") if which % 2 else None
        seq = seq or self.pick(which, "swap") or self.pick(which)
        if seq is None:
            return
        family = [s for s in self.live.values() if s.family == seq.family]
        if any(s.in_step or s.place != seq.place for s in family):
            return
        there = "swap" if seq.place == "gpu" else "gpu"
        blocks = {block for s in family for block in s.table}
        free = self.target.num_free_swap() if there == "swap" else self.target.num_free()
        reserve = 0 if there == "swap" else self.watermark
        name = "swap_out" if there == "swap" else "swap_in"
        pairs = self.call(name, seqs=[s.seq for s in family])
        if pairs is None:
            self.demand(
                "what-fits-is-taken",
                len(blocks) + reserve > free,
                f"{name} of {len(blocks)} blocks was refused, and {free} are free",
            )
            return
        self.moved(family, [list(pair) for pair in pairs], there)

    def moved(self, family: list[Tracked], pairs: list[list[int]], there: str) -> None:
        here = family[0].place
        new = dict((source, destination) for source, destination in pairs)
        blocks = {block for s in family for block in s.table}
        used = self.used(there)
        self.demand(
            "swaps-only-rename",
            set(new) == blocks and len(pairs) == len(new) == len(set(new.values())),
            f"the blocks {sorted(blocks)} were to be moved, by {pairs}",
        )
        self.demand(
            "blocks-have-one-owner",
            not used & set(new.values()),
            f"{pairs} overwrite blocks in use: {sorted(used)}",
        )
        if there == "gpu":
            self.take(family[0], list(new.values()))
            self.seen |= set(new.values())
        copy(self.pools[here], self.pools[there], pairs)
        for seq in family:
            before, seq.table = seq.table, self.table(seq.seq)
            self.demand(
                "swaps-only-rename",
                seq.table == [new[block] for block in before],
                f"sequence {seq.seq} had {before}, was moved by {pairs}, and has {seq.table}",
            )
            seq.place, seq.caching = there, False
            self.pools[here].note_freed(reversed(before), self.used(here))
        self.check()

    def do_reset(self) -> None:
        before = self.trace()
        if self.target.reset():
            self.pools["gpu"].forget_all()
            self.finished.clear()
            for seq in self.live.values():
                seq.alone = seq.caching = False
            found = [self.match(*pair) for pair in self.known] if "match" in self.has else []
            self.demand("a-reset-forgets", not any(found), f"{found} tokens are found after it")
        else:
            self.refused(before, "reset")
        self.check()

    def do_misuse(self, which: int, other: int) -> None:
        """Calls that would spoil tables are refused."""
        swapped, seq, parent = self.pick(which, "swap"), self.pick(which), self.pick(other)
        if swapped is not None:
            self.must_refuse("extend", seq=swapped.seq, tokens=[0], chunk=1, guesses=[])
        elif "fork" in self.has and seq is not None and parent is not None:
            self.must_refuse("fork", parent=parent.seq, child=seq.seq)

    def must_refuse(self, what: str, **arguments: Any) -> None:
        got = self.call(what, **arguments)
        self.demand("misuse-is-refused", got is None, f"{what} {arguments} gave {got}")
        self.check()

    def end(self) -> None:
        """All ends; nothing may be left, and the whole pool can be had again."""
        self.do_step([])
        for seq in list(self.live.values()):
            self.free(seq)
        self.do_step([])
        for key, tokens in self.known[:-3:-1] if "keeps" in self.has else []:
            again = self.open(key, [*tokens, 0], len(tokens) + 1)
            self.do_step([])
            if again is not None:
                self.free(again)
        self.do_step([])
        free = self.target.num_free()
        self.demand(
            "nothing-leaks", free == self.capacity, f"{free} of {self.capacity} are free at the end"
        )
        count = self.capacity - self.watermark
        if count <= 0:
            return
        tokens = [1000 + i for i in range(count * self.size)]
        for _ in range(2):
            last = self.open((None, None), tokens, len(tokens), refusal="nothing-leaks")
            self.do_step([])
            if last is not None:
                self.free(last)
                self.do_step([])
