"""Wrong targets: each is right but for the mistake in its name, and names who must notice it."""

from typing import Any

from paged_conformance.prefix_cache.right import Node, Radix


class LocksParentsOnly(Radix):
    """A lock leaves out the node that was matched."""

    caught_by = "what-is-locked-is-protected"

    def lock(self, *, handle: int) -> None:
        for node in self.handles[handle].path()[1:]:
            node.locks += 1

    def unlock(self, *, handle: int) -> None:
        for node in self.handles[handle].path()[1:]:
            node.locks -= 1


class LocksTheMatchedNodeOnly(Radix):
    """A lock leaves out what comes before the matched node."""

    caught_by = "what-is-locked-is-protected"

    def lock(self, *, handle: int) -> None:
        for node in self.handles[handle].path()[:1]:
            node.locks += 1

    def unlock(self, *, handle: int) -> None:
        for node in self.handles[handle].path()[:1]:
            node.locks -= 1


class SplitsForgetLocks(Radix):
    """The first half of a node that is split is not locked any more."""

    caught_by = "what-is-locked-is-protected"

    def split(self, node: Node, count: int, salt: str | None) -> Node:
        upper = super().split(node, count, salt)
        upper.locks = 0
        return upper


class UnlocksAllAtOnce(Radix):
    """One unlock ends all locks of a node."""

    caught_by = "what-is-locked-is-protected"

    def unlock(self, *, handle: int) -> None:
        for node in self.handles[handle].path():
            node.locks = 0


class EvictsWhatIsLocked(Radix):
    """Locks count for the sizes, and eviction takes any leaf."""

    caught_by = "locked-is-kept"

    def victims(self) -> list[Node]:
        leaves = [node for node in self.nodes() if not node.children]
        return sorted(leaves, key=lambda node: node.used)


class NeverUnlocks(Radix):
    """The second unlock of a handle is forgotten."""

    caught_by = "nothing-stays-locked"

    def unlock(self, *, handle: int) -> None:
        if max((node.locks for node in self.handles[handle].path()), default=0) != 2:
            super().unlock(handle=handle)


class KeepsALockForEver(Radix):
    """What was locked once stays, though the sizes do not say so."""

    caught_by = "what-is-evictable-is-evicted"

    def lock(self, *, handle: int) -> None:
        super().lock(handle=handle)
        for node in self.handles[handle].path():
            self.stuck.add(id(node))

    @property
    def stuck(self) -> set[int]:
        found: set[int] = self.__dict__.setdefault("_stuck", set())
        return found

    def evict(self, *, num_tokens: int) -> list[int]:
        slots: list[int] = []
        while len(slots) < num_tokens:
            fit = [node for node in self.victims() if id(node) not in self.stuck]
            if not fit:
                break
            slots += self.remove(fit[0])
        return slots


class EvictsMiddles(Radix):
    """A node is evicted with all that goes on from it, whose slots are lost."""

    caught_by = "sizes-add-up"

    def victims(self) -> list[Node]:
        return sorted((n for n in self.nodes() if n.locks == 0), key=lambda node: node.used)


class EvictsOnePageLess(Radix):
    """The last page's evicted slots are lost when more than one page was asked for."""

    caught_by = "what-is-evictable-is-evicted"

    def evict(self, *, num_tokens: int) -> list[int]:
        slots = super().evict(num_tokens=num_tokens)
        return slots[: -self.page_size] if len(slots) > self.page_size else slots


class EvictsTwice(Radix):
    """An eviction gives the first page back twice."""

    caught_by = "evicted-once"

    def evict(self, *, num_tokens: int) -> list[int]:
        slots = super().evict(num_tokens=num_tokens)
        size = self.page_size
        return slots[:-size] + slots[:size] if len(slots) > size else slots


class GivesFirstSlotsOfPages(Radix):
    """An eviction gives one slot for a page."""

    caught_by = "what-is-evictable-is-evicted"

    def evict(self, *, num_tokens: int) -> list[int]:
        return super().evict(num_tokens=num_tokens)[:: self.page_size]


class KeepsTheNewSlots(Radix):
    """An insert of what is there replaces its slots by the caller's."""

    caught_by = "matches-are-equal-texts"

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        got = super().insert(tokens=tokens, slots=slots, salt=salt)
        node, start = self.walk(tokens, salt)[0], 0
        for part in reversed(node.path()):
            for page in part.slots:
                page[:] = slots[start : start + self.page_size]
                start += self.page_size
        return got


class MatchesPartsOfPages(Radix):
    """A match goes on into a page that it shares only the beginning of."""

    caught_by = "matches-are-whole-pages"

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        got = super().match(tokens=tokens, salt=salt)
        node, rest = self.handles[-1], tokens[len(got["slots"]) :]
        for child in node.children.values():
            same = [mine == theirs for mine, theirs in zip(child.pages[0], rest, strict=False)]
            count = same.index(False) if False in same else len(same)
            got["slots"] = got["slots"] + child.slots[0][:count]
            break
        return got


class MatchesOneNode(Radix):
    """A match ends with the first node."""

    caught_by = "matches-are-longest"

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        got = super().match(tokens=tokens, salt=salt)
        path = self.handles[-1].path()
        if len(path) > 2:
            self.handles[-1] = path[-1]
            got["slots"] = [slot for page in path[-1].slots for slot in page]
        return got


class GivesSlotsBackToFront(Radix):
    """A match gives the slots of its last node first."""

    caught_by = "matches-are-equal-texts"

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        got = super().match(tokens=tokens, salt=salt)
        slots = [s for part in self.handles[-1].path() for page in part.slots for s in page]
        return {**got, "slots": slots}


class LosesWhatWasSplitOff(Radix):
    """The second half of a node that is split is found no more."""

    caught_by = "sizes-add-up"

    def split(self, node: Node, count: int, salt: str | None) -> Node:
        upper = super().split(node, count, salt)
        upper.children.clear()
        return upper


class CountsWhatItInserted(Radix):
    """An insert answers with what is there afterwards."""

    caught_by = "inserts-keep-what-is-there"

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        super().insert(tokens=tokens, slots=slots, salt=salt)
        return {"cached": len(tokens) // self.page_size * self.page_size}


class IgnoresSalts(Radix):
    """Texts of different salts share a node."""

    caught_by = "matches-are-equal-texts"

    def first(self, page: tuple[int, ...], salt: str | None) -> Any:
        return page

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        return super().match(tokens=tokens, salt=None)


class ComparesFirstTokens(Radix):
    """Pages with the same first token are taken for the same."""

    caught_by = "matches-are-equal-texts"

    def first(self, page: tuple[int, ...], salt: str | None) -> Any:
        return (salt, page[0])


class EvictsTheNewest(Radix):
    """The leaf that was used last is evicted first."""

    caught_by = "the-oldest-goes-first"

    def victims(self) -> list[Node]:
        return super().victims()[::-1]


class SplitsAreOld(Radix):
    """A match that splits a node does not count as its use."""

    caught_by = "the-oldest-goes-first"

    def split(self, node: Node, count: int, salt: str | None) -> Node:
        upper = super().split(node, count, salt)
        self.old = (upper, upper.used)
        return upper

    def walk(self, tokens: list[int], salt: str | None) -> tuple[Node, int]:
        self.old = None
        got = super().walk(tokens, salt)
        if self.old is not None:
            self.old[0].used = self.old[1]
        return got

    old: tuple[Node, int] | None = None


WRONG: tuple[type[Radix], ...] = tuple(
    kind
    for kind in vars().copy().values()
    if isinstance(kind, type) and issubclass(kind, Radix) and "caught_by" in vars(kind)
)
