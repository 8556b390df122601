"""Carries out a history on a cache, with the memory and the requests that an engine would have.

Each demand belongs to a property by its name. When a demand fails, the property that is being
tested is broken if it is its own; otherwise the example ends there with Elsewhere.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from paged_conformance.block_manager.memory import Texts
from paged_conformance.properties import Broken, Elsewhere, Refused


def run(make: Any, example: Any, subject: str) -> None:
    """Raises Broken if the history breaks the property `subject`, Elsewhere if it breaks another.

    Whatever the target raises is passed on.
    """
    driver = Driver(make, example, subject)
    driver.check()
    for name, *arguments in example["ops"]:
        getattr(driver, f"do_{name}")(*arguments)
        driver.check()
    driver.end()


@dataclass
class Found:
    """A handle, and the pages that it stands for; `locks` times locked."""

    handle: int
    pages: list[int]
    slots: list[int]
    locks: int = 0


@dataclass
class Request:
    """Tokens with their slots, those of the cache first; the cache's are locked."""

    tokens: list[int]
    salt: str | None
    found: Found
    slots: list[int] = field(default_factory=list)


class Driver:
    """The operations by name. One that does not apply is passed over."""

    def __init__(self, make: Any, example: Any, subject: str) -> None:
        self.subject = subject
        self.has = frozenset(getattr(make, "capabilities", ()))
        self.size: int = example["page_size"]
        self.target = make(page_size=self.size)
        self.texts = Texts()
        # A page is known by the text at its end. Its slots, and the page before it:
        self.cached: dict[int, list[int]] = {}
        self.before: dict[int, int | None] = {}
        self.locks: Counter[int] = Counter()
        self.last_use: dict[int, int] = {}
        self.clock = 0
        self.free_pages = list(range(example["num_pages"]))
        self.requests: list[Request] = []
        self.held: list[Found] = []
        self.extra: list[Found] = []
        self.known: list[list[int]] = []

    def demand(self, subject: str, holds: bool, says: str) -> None:
        if not holds:
            if self.subject in (subject, "*"):
                raise Broken(says if self.subject == subject else f"{subject}: {says}")
            raise Elsewhere(f"{subject}: {says}")

    # What must hold

    def check(self) -> None:
        """After every operation: what the sizes say."""
        sizes = self.target.sizes()
        evictable, protected = sizes["evictable"], sizes["protected"]
        self.demand(
            "sizes-add-up",
            evictable + protected == self.num_cached() and evictable >= 0 and protected >= 0,
            f"{evictable} tokens are evictable and {protected} protected; {self.num_cached()} are "
            "cached",
        )
        locked = len(+self.locks) * self.size
        self.demand(
            "nothing-stays-locked",
            locked > 0 or protected == 0,
            f"nothing is locked any more, and {protected} tokens are protected",
        )
        self.demand(
            "what-is-locked-is-protected",
            protected == locked or ("exact_sizes" not in self.has and protected > locked),
            f"{locked} cached tokens are locked, and {protected} protected",
        )

    def num_cached(self) -> int:
        return len(self.cached) * self.size

    def pages(self, tokens: list[int], salt: str | None) -> list[int]:
        """The whole pages of these tokens, each known by the text at its end."""
        return self.texts.chain((salt, None), tokens)[self.size - 1 :: self.size]

    def longest(self, pages: list[int]) -> int:
        """How many of these pages are cached, from the first."""
        count = 0
        while count < len(pages) and pages[count] in self.cached:
            count += 1
        return count

    def use(self, pages: list[int]) -> None:
        self.clock += 1
        self.last_use.update(dict.fromkeys(pages, self.clock))

    def match(self, tokens: list[int], salt: str | None) -> Found:
        got = self.target.match(tokens=tokens, salt=salt)
        slots = list(got["slots"])
        pages = self.pages(tokens, salt)
        count = len(slots)
        self.demand(
            "matches-are-whole-pages",
            count % self.size == 0 and count <= len(tokens),
            f"{count} of {len(tokens)} tokens were matched, with pages of {self.size}",
        )
        there = pages[: count // self.size]
        right = [slot for page in there for slot in self.cached.get(page, [])]
        self.demand(
            "matches-are-equal-texts",
            slots == right,
            f"{tokens} were matched with the slots {slots}; what was cached for them is {right}",
        )
        longest = self.longest(pages) * self.size
        self.demand(
            "matches-are-longest",
            count == longest,
            f"{count} of the tokens {tokens} were matched, {longest} are cached",
        )
        pages = pages[: count // self.size]
        self.use(pages)
        return Found(got["handle"], pages, slots)

    def lock(self, found: Found) -> None:
        self.target.lock(handle=found.handle)
        found.locks += 1
        self.locks.update(found.pages)

    def unlock(self, found: Found) -> None:
        self.target.unlock(handle=found.handle)
        found.locks -= 1
        self.locks.subtract(found.pages)

    def insert(self, tokens: list[int], slots: list[int], salt: str | None) -> int:
        pages = self.pages(tokens, salt)
        count: int = self.target.insert(tokens=tokens, slots=slots, salt=salt)["cached"]
        there = self.longest(pages)
        self.demand(
            "inserts-keep-what-is-there",
            count == there * self.size,
            f"{tokens} were inserted, of which {there * self.size} are cached already, not {count}",
        )
        for index in range(there, len(pages)):
            self.cached[pages[index]] = slots[index * self.size : (index + 1) * self.size]
            self.before[pages[index]] = pages[index - 1] if index else None
        self.use(pages)
        return count

    def evict(self, num_tokens: int) -> bool:
        """Evicts; False if so many could not be."""
        could = self.target.sizes()["evictable"]
        try:
            slots = list(self.target.evict(num_tokens=num_tokens))
        except Refused:
            self.demand(
                "what-is-evictable-is-evicted",
                num_tokens > could,
                f"{num_tokens} tokens were not evicted, of {could} that are evictable",
            )
            return False
        by_slot = {slot: page for page, slots in self.cached.items() for slot in slots}
        self.demand(
            "what-is-evictable-is-evicted",
            min(num_tokens, could) <= len(slots) <= could,
            f"{len(slots)} tokens were evicted, {num_tokens} were asked for, {could} evictable",
        )
        self.demand(
            "evicted-once",
            len(set(slots)) == len(slots) and set(slots) <= set(by_slot),
            f"{slots} were evicted, {sorted(by_slot)} were cached",
        )
        locked = [slot for slot in slots if self.locks[by_slot[slot]] > 0]
        self.demand("locked-is-kept", not locked, f"the slots {locked} are locked, and evicted")
        numbers = Counter(slot // self.size for slot in slots)
        self.demand(
            "evicted-once",
            set(numbers.values()) <= {self.size},
            f"{slots} were evicted, which are no whole pages of {self.size}",
        )
        self.drop({by_slot[slot] for slot in slots})
        self.free_pages += sorted(numbers)
        if slots:
            self.held.clear()
        return True

    def drop(self, pages: set[int]) -> None:
        """These pages are cached no more; one after the other, they were the oldest ends."""
        left = set(pages)
        while left and "lru" in self.has:
            oldest = self.oldest_end()
            self.demand(
                "the-oldest-goes-first",
                oldest in left,
                f"the slots {[self.cached[page] for page in left]} were evicted before those of "
                f"the beginning that was used least recently, {self.cached.get(oldest)}",
            )
            left.discard(oldest)
            del self.cached[oldest]
        for page in left:
            del self.cached[page]

    def oldest_end(self) -> int:
        """The unlocked page used longest ago, among those that no cached one goes on from; or -1.

        A use is one of a whole beginning, so no two ends have the same last one.
        """
        inner = {self.before[page] for page in self.cached}
        ends = [page for page in self.cached if page not in inner and self.locks[page] <= 0]
        return min(ends, key=lambda page: self.last_use[page], default=-1)

    # Operations

    def pick(self, which: int) -> Request | None:
        return self.requests[which % len(self.requests)] if self.requests else None

    def text(self, prompt: Any) -> tuple[list[int], str | None]:
        which, skipped, num_pages, num_tokens, more, salt = prompt
        base = self.known[which % len(self.known)] if which >= 0 and self.known else []
        base = base[skipped * self.size :]
        tokens = [*base[: num_pages * self.size + num_tokens], *more][: 4 * self.size + 3]
        self.known = [*(other for other in self.known if other != tokens), tokens][-6:]
        return tokens, salt

    def room(self, num_pages: int) -> list[int] | None:
        """The slots of so many free pages; None if they cannot be had."""
        lacking = num_pages - len(self.free_pages)
        if lacking > 0:
            if self.target.sizes()["evictable"] < lacking * self.size:
                return None
            self.evict(lacking * self.size)
        pages, self.free_pages = self.free_pages[:num_pages], self.free_pages[num_pages:]
        return [page * self.size + i for page in pages for i in range(self.size)]

    def give_back(self, slots: list[int]) -> None:
        self.free_pages += sorted({slot // self.size for slot in slots})

    def do_begin(self, prompt: Any) -> None:
        """A request comes: what is cached is matched and locked, the rest gets slots."""
        tokens, salt = self.text(prompt)
        found = self.match(tokens[: max(0, len(tokens) - 1)], salt)
        self.lock(found)
        slots = self.room(-(-(len(tokens) - len(found.slots)) // self.size))
        if slots is None:
            self.unlock(found)
            return
        self.requests.append(Request(tokens, salt, found, [*found.slots, *slots]))

    def do_go_on(self, which: int, more: list[int]) -> None:
        """A request computes further tokens."""
        request = self.pick(which)
        if request is not None:
            need = -(-(len(request.tokens) + len(more)) // self.size)
            slots = self.room(need - len(request.slots) // self.size)
            if slots is not None:
                request.tokens += more
                request.slots += slots

    def do_finish(self, which: int) -> None:
        """A request ends: it inserts what it has computed and frees the rest."""
        request = self.pick(which)
        if request is not None:
            self.requests.remove(request)
            self.put(request)
            whole = len(request.tokens) // self.size * self.size
            self.unlock(request.found)
            self.give_back(request.slots[whole:])

    def put(self, request: Request) -> None:
        """Inserts a request's tokens, and frees the slots of those that were there already."""
        slots = request.slots[: len(request.tokens)]
        cached = self.insert(request.tokens, slots, request.salt)
        self.give_back(slots[len(request.found.slots) : cached])

    def do_keep(self, which: int) -> None:
        """A request inserts what it has computed, and goes on with the slots of the cache."""
        request = self.pick(which)
        if request is not None:
            self.put(request)
            whole = len(request.tokens) // self.size * self.size
            found = self.match(request.tokens[:whole], request.salt)
            self.lock(found)
            self.unlock(request.found)
            request.found = found
            request.slots = [*found.slots, *request.slots[whole:]]

    def do_abandon(self, which: int) -> None:
        """A request is aborted: it inserts nothing."""
        request = self.pick(which)
        if request is not None:
            self.requests.remove(request)
            self.unlock(request.found)
            self.give_back(request.slots[len(request.found.slots) :])

    def do_look(self, prompt: Any) -> None:
        tokens, salt = self.text(prompt)
        self.match(tokens, salt)

    def do_hold(self, prompt: Any) -> None:
        """A match that is locked later, if nothing is evicted before."""
        tokens, salt = self.text(prompt)
        self.held.append(self.match(tokens, salt))

    def do_lock_held(self, which: int) -> None:
        if self.held:
            found = self.held.pop(which % len(self.held))
            self.lock(found)
            self.extra.append(found)

    def do_lock_again(self, which: int) -> None:
        """One more lock of a request's handle; or, of those that there are, one less."""
        request = self.pick(which)
        if self.extra and which % 2:
            self.unlock(self.extra.pop(which % len(self.extra)))
        elif request is not None:
            self.lock(request.found)
            self.extra.append(request.found)

    def do_evict(self, num_pages: int) -> None:
        self.evict(num_pages * self.size)

    def do_reset(self) -> None:
        if self.requests or self.extra:
            return
        self.target.reset()
        self.give_back([slot for slots in self.cached.values() for slot in slots])
        self.cached.clear()
        self.held.clear()

    def end(self) -> None:
        """All ends, all locks go; then everything can be evicted, and each slot comes back once."""
        while self.requests:
            self.do_finish(0)
        while self.extra:
            self.unlock(self.extra.pop())
        self.check()
        while self.cached and "lru" in self.has:  # the order is seen in small bites
            self.evict(self.size)
            self.check()
        self.evict(self.num_cached())
        self.check()
