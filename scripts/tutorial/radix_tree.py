"""A small radix tree over token ids, as in SGLang's RadixAttention: prefixes of any length.

An edge holds a run of tokens and the slot of each. Two prompts share the path that they have in
common; where they part, an edge is split. A slot of the KV cache holds one token.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Node:
    """The end of an edge: its tokens and slots; `last_used` is the time of its last look-up."""

    tokens: list[int]
    slots: list[int]
    last_used: int = 0
    children: dict[int, "Node"] = field(default_factory=dict)  # by the first token of their edge


def shared(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences have in common at their beginning."""
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


class RadixTree:
    """From prefixes to slots."""

    def __init__(self) -> None:
        self.root = Node([], [])
        self.clock = 0

    def lookup(self, tokens: Sequence[int]) -> list[int]:
        """The slots of the longest prefix that is known, but for the last token."""
        self.clock += 1
        node, found, at = self.root, list[int](), 0
        while (child := node.children.get(tokens[at])) and at < len(tokens) - 1:
            hit = shared(child.tokens, tokens[at : len(tokens) - 1])
            child.last_used = self.clock
            found += child.slots[:hit]
            at += hit
            if hit < len(child.tokens):
                break
            node = child
        return found

    def insert(self, tokens: Sequence[int], slots: Sequence[int]) -> None:
        """Learns a sequence; what is known keeps its slots."""
        self.clock += 1
        node, at = self.root, 0
        while at < len(tokens):
            child = node.children.get(tokens[at])
            if child is None:
                leaf = Node(list(tokens[at:]), list(slots[at:]), self.clock)
                node.children[tokens[at]] = leaf
                return
            hit = shared(child.tokens, tokens[at:])
            if hit < len(child.tokens):
                child = self._split(node, child, hit)
            child.last_used = self.clock
            node, at = child, at + hit

    def _split(self, parent: Node, child: Node, at: int) -> Node:
        """Cuts an edge in two; the first part becomes the parent of the second."""
        upper = Node(child.tokens[:at], child.slots[:at], child.last_used)
        child.tokens, child.slots = child.tokens[at:], child.slots[at:]
        upper.children[child.tokens[0]] = child
        parent.children[upper.tokens[0]] = upper
        return upper

    def evict(self) -> list[int]:
        """Forgets the least recently used leaf; its slots."""
        leaves = [
            (child.last_used, key, node)
            for node in self.nodes()
            for key, child in node.children.items()
            if not child.children
        ]
        _, key, parent = min(leaves, key=lambda leaf: leaf[0])
        return parent.children.pop(key).slots

    def nodes(self) -> list[Node]:
        """All of them, parents first."""
        found = [self.root]
        for node in found:
            found += node.children.values()
        return found

    def lines(self, node: Node | None = None, depth: int = 0) -> list[str]:
        """The tree in text, an edge a line; tokens are characters' codes."""
        node = self.root if node is None else node
        rows = []
        for child in node.children.values():
            rows.append(f"{'    ' * depth}{''.join(map(chr, child.tokens))!r}")
            rows += self.lines(child, depth + 1)
        return rows
