"""A radix tree of pages as a right target, which the wrong ones change in one place each."""

from dataclasses import dataclass, field
from typing import Any

from paged_conformance.properties import Refused


@dataclass(eq=False)
class Node:
    """Some pages behind its parent's; `locks` protect it."""

    pages: list[tuple[int, ...]]
    slots: list[list[int]]
    parent: "Node | None" = None
    children: dict[Any, "Node"] = field(default_factory=dict)
    locks: int = 0
    used: int = 0

    def path(self) -> "list[Node]":
        """The nodes from this one up to the root, without it."""
        return [] if self.parent is None else [self, *self.parent.path()]


class Radix:
    """A right radix cache. Its nodes are split where a match or an insert ends."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.root = Node([], [])
        self.handles: list[Node] = []
        self.clock = 0

    def first(self, page: tuple[int, ...], salt: str | None) -> Any:
        """By what a child is found among its siblings."""
        return (salt, page)

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def walk(self, tokens: list[int], salt: str | None) -> tuple[Node, int]:
        """The node where the longest beginning ends, and how many pages that is."""
        size, node, count, now = self.page_size, self.root, 0, self.tick()
        pages = [tuple(tokens[i : i + size]) for i in range(0, len(tokens) - size + 1, size)]
        while count < len(pages):
            child = node.children.get(self.first(pages[count], salt))
            if child is None:
                break
            same = 0
            for mine, theirs in zip(child.pages, pages[count:], strict=False):
                if mine != theirs:
                    break
                same += 1
            count += same
            if same < len(child.pages):
                child = self.split(child, same, salt)
                self.touch(child, now)
                return child, count
            node = child
            self.touch(node, now)
        return node, count

    def touch(self, node: Node, now: int) -> None:
        node.used = now

    def split(self, node: Node, count: int, salt: str | None) -> Node:
        """Parts a node; the new one has its first pages."""
        assert node.parent is not None
        upper = Node(node.pages[:count], node.slots[:count], node.parent, used=node.used)
        upper.locks = node.locks
        node.parent.children[self.first(upper.pages[0], salt)] = upper
        node.pages, node.slots, node.parent = node.pages[count:], node.slots[count:], upper
        upper.children[self.first(node.pages[0], salt)] = node
        return upper

    def match(self, *, tokens: list[int], salt: str | None) -> dict[str, Any]:
        node, _ = self.walk(tokens, salt)
        self.handles.append(node)
        slots = [s for part in reversed(node.path()) for page in part.slots for s in page]
        return {"handle": len(self.handles) - 1, "slots": slots}

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        size = self.page_size
        node, count = self.walk(tokens, salt)
        rest = range(count * size, len(tokens) // size * size, size)
        pages = [tuple(tokens[i : i + size]) for i in rest]
        if pages:
            new = Node(pages, [list(slots[i : i + size]) for i in rest], node, used=self.tick())
            node.children[self.first(pages[0], salt)] = new
        return {"cached": count * size}

    def lock(self, *, handle: int) -> None:
        for node in self.handles[handle].path():
            node.locks += 1

    def unlock(self, *, handle: int) -> None:
        for node in self.handles[handle].path():
            node.locks -= 1

    def nodes(self) -> list[Node]:
        found, left = [], list(self.root.children.values())
        while left:
            found.append(left.pop())
            left += found[-1].children.values()
        return found

    def sizes(self) -> dict[str, int]:
        free = sum(len(node.pages) for node in self.nodes() if node.locks == 0)
        kept = sum(len(node.pages) for node in self.nodes() if node.locks)
        return {"evictable": free * self.page_size, "protected": kept * self.page_size}

    def victims(self) -> list[Node]:
        """Which nodes may be evicted, the next one first."""
        leaves = [n for n in self.nodes() if not n.children and n.locks == 0]
        return sorted(leaves, key=lambda node: node.used)

    def evict(self, *, num_tokens: int) -> list[int]:
        if num_tokens > self.sizes()["evictable"]:
            raise Refused("so many are not evictable")
        slots: list[int] = []
        while len(slots) < num_tokens:
            slots += self.remove(self.victims()[0])
        return slots

    def remove(self, node: Node) -> list[int]:
        assert node.parent is not None
        siblings = node.parent.children
        del siblings[next(key for key, child in siblings.items() if child is node)]
        return [slot for page in node.slots for slot in page]

    def reset(self) -> None:
        self.root = Node([], [])


class NewestFirst(Radix):
    """Evicts the youngest leaf, page by page from its end, and gives all when asked for more."""

    def evict(self, *, num_tokens: int) -> list[int]:
        slots: list[int] = []
        while len(slots) < num_tokens and self.victims():
            node = self.victims()[-1]
            slots += node.slots.pop()
            node.pages.pop()
            if not node.pages:
                self.remove(node)
        return slots


class OnePageNodes(Radix):
    """Each page is a node of its own, as in a cache by hashes."""

    def insert(self, *, tokens: list[int], slots: list[int], salt: str | None) -> dict[str, int]:
        size, cached = self.page_size, None
        for end in range(size, len(tokens) + 1, size):
            got = super().insert(tokens=tokens[:end], slots=slots[:end], salt=salt)["cached"]
            if cached is None and got < end:
                cached = got
        whole = len(tokens) // size * size
        return {"cached": whole if cached is None else cached}


RIGHT: tuple[type[Radix], ...] = (Radix, NewestFirst, OnePageNodes)


def maker(kind: type[Radix]) -> Any:
    """The factory of targets of this kind."""

    def make(*, page_size: int) -> Radix:
        return kind(page_size)

    words = ["salts", "reset", "exact_sizes"]
    make.capabilities = words if issubclass(kind, NewestFirst) else [*words, "lru"]  # type: ignore[attr-defined]
    make.sizes = {"max_page_size": 8}  # type: ignore[attr-defined]
    return make
