"""Prefix caching, added to engines after the paper: finds blocks by their content.

§4.4 shares prefixes that the operator names beforehand; here every full block may be shared. A
block's KV depends on all tokens up to its end, so its content is a *chain*: its own tokens, and
the content of the block before. A wrong hit would give wrong output, so nodes are compared exactly;
the hash only finds candidates.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from jaxtyping import Float

type Salt = str | tuple[str, str | None] | tuple[str | None, str | None, str] | None
"""A request's own salt; with an adapter, the adapter's digest and that salt. With embeddings in
place of tokens there are always both, and behind them the digest of those in the block."""
type HashFunction = Callable[[tuple[object, ...]], int]


class EmbedsSalt:
    """The salts of a prompt that is given as embeddings, whose token ids say nothing: one a block.

    A block behind the prompt has the digest of no embeddings, as in vLLM.

    Args:
        embeds: One for each position of the prompt.
        adapter: The adapter's digest; None: there is none.
        own: The request's own salt.
    """

    __slots__ = ("_digests", "_embeds", "adapter", "own")

    def __init__(
        self, embeds: Float[np.ndarray, "n E"], adapter: str | None, own: str | None
    ) -> None:
        self.adapter, self.own = adapter, own
        self._embeds = embeds
        self._digests: dict[tuple[int, int], str] = {}

    def of_block(self, start: int, end: int) -> Salt:
        """The salt of a block with these positions. Sequences of one request share the digests."""
        digest = self._digests.get((start, end))
        if digest is None:
            digest = hashlib.sha256(self._embeds[start:end].tobytes()).hexdigest()
            self._digests[start, end] = digest
        return self.adapter, self.own, digest


type PromptSalt = Salt | EmbedsSalt
"""What a request's blocks are kept apart by: one salt for all, or one for each."""


def salt_parts(salt: Salt) -> tuple[str | None, str | None, str | None]:
    """The digest of the adapter, the request's own salt, and the digest of embeddings."""
    match salt:
        case (adapter, own, embeds):
            return adapter, own, embeds
        case (adapter, own):
            return adapter, own, None
    return None, salt, None


class Node:
    """The content of a full block and, through its parents, of all blocks before it.

    Attributes:
        parent: Content of the block before; None for a first block.
        tokens: The B tokens of this block.
        salt: Its request's, or its own; blocks of different salts share nothing.
        chain_hash: Hash of the whole chain, computed once from the parent's.
        digest: The chain's name for routers, once `block_digest` has made it.
        name: The chain's name in files, once `kv_store.block_file` has made it.
    """

    __slots__ = ("chain_hash", "digest", "name", "parent", "salt", "tokens")

    def __init__(
        self,
        parent: "Node | None",
        tokens: tuple[int, ...],
        salt: Salt,
        hash_fn: HashFunction = hash,
    ) -> None:
        self.parent = parent
        self.tokens = tokens
        self.salt = salt
        self.digest: bytes | None = None
        self.name: bytes | None = None
        self.chain_hash: int = hash_fn((parent.chain_hash if parent else None, tokens, salt))

    def __hash__(self) -> int:
        return self.chain_hash

    def __eq__(self, other: object) -> bool:
        """Compares whole chains, in a loop: a chain may be longer than Python's recursion limit.

        Chains that were looked up share their nodes (`_adopt`), so the walk usually ends at the
        first parent.
        """
        if not isinstance(other, Node):
            return NotImplemented
        left: Node | None = self
        right: Node | None = other
        while left is not right:
            if left is None or right is None:
                return False
            if left.tokens != right.tokens or left.salt != right.salt:
                return False
            left, right = left.parent, right.parent
        return True


class Listener(Protocol):
    """Is told what comes into an index and goes from it."""

    def stored(self, nodes: list[Node]) -> None:
        """These nodes have entered it, in the order of a chain; some of its nodes may lack."""

    def evicted(self, node: Node) -> None:
        """This node has left it."""

    def cleared(self) -> None:
        """It is empty."""


MIXED = -1
"""In place of a prompt's length: the sequence reads blocks that it would compute to other bits."""
ALL_PROMPT = 2**62
"""In place of a prompt's length: all tokens of these blocks are a prompt's."""


class PrefixCache:
    """An index of blocks by content; at most one block for each content.

    A prompt's positions and generated ones are added up in other orders (I47). So the index knows
    of each block where the prompt of the sequence that computed it ended, if not behind the block.
    Whoever needs the very bits takes no block of a sequence whose prompt ended elsewhere.

    It ignores reference counts. A freed block stays cached until the pool allocates it again
    (`evict`), so the pool's free order is the eviction order.

    Attributes:
        events: Is told what comes and goes; None: nobody wants to know.
        prompts: (node, block) of each block that was entered to be computed next, all of whose
            tokens are a prompt's, until somebody takes them; None: nobody does.
    """

    __slots__ = (
        "_blocks", "_nodes", "_prompt_ends", "block_size", "events", "hash_fn", "prompts",
    )  # fmt: skip

    def __init__(self, block_size: int, hash_fn: HashFunction = hash) -> None:
        self.block_size = block_size
        self.hash_fn = hash_fn
        self.events: Listener | None = None
        self.prompts: list[tuple[Node, int]] | None = None
        self._blocks: dict[Node, int] = {}
        self._nodes: dict[int, Node] = {}
        self._prompt_ends: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def blocks(self) -> list[int]:
        """The blocks whose content is known."""
        return list(self._nodes)

    def contents(self) -> list[Node]:
        """The contents that a prompt could hit."""
        return list(self._blocks)

    def extend_chain(
        self, chain: list[Node], token_ids: Sequence[int], num_blocks: int, salt: PromptSalt
    ) -> None:
        """Appends the nodes that `chain` lacks for the first `num_blocks` blocks of `token_ids`."""
        size = self.block_size
        parent = chain[-1] if chain else None
        for start in range(len(chain) * size, num_blocks * size, size):
            own = salt.of_block(start, start + size) if isinstance(salt, EmbedsSalt) else salt
            parent = Node(parent, tuple(token_ids[start : start + size]), own, self.hash_fn)
            chain.append(parent)

    def match(self, chain: list[Node], num_blocks: int, prompt_len: int | None = None) -> list[int]:
        """Blocks of the leading nodes of `chain`, at most `num_blocks`, up to the first miss.

        With `prompt_len`, a block of a sequence whose prompt ended elsewhere is a miss.

        Nodes found are replaced in `chain` by the cache's own, so that later comparisons end at
        once.
        """
        hits: list[int] = []
        for index in range(num_blocks):
            block = self._blocks.get(chain[index])
            if block is None:
                break
            if prompt_len is not None and not self.is_same(block, index, prompt_len):
                break
            _adopt(chain, index, self._nodes[block])
            hits.append(block)
        return hits

    def is_same(self, block: int, index: int, prompt_len: int) -> bool:
        """Whether a sequence with this prompt computes the same bits in its logical block `index`.

        It does if it has computed those before, or has found them to be the same too.
        """
        return self._prompt_ends.get(block) == self._prompt_end(index, prompt_len)

    def register(
        self,
        chain: list[Node],
        blocks: Sequence[int],
        first: int,
        last: int,
        prompt_len: int,
        *,
        is_loaded: bool = False,
    ) -> None:
        """Enters `blocks[first:last]` under their nodes in `chain`.

        `prompt_len` is that of the sequence that computes them, or MIXED. With `is_loaded` they
        are not computed: they come from a store.

        Content that is cached already keeps its block; the duplicate is not entered.
        """
        entered = []
        for index in range(first, last):
            node, block = chain[index], blocks[index]
            present = self._blocks.get(node)
            if present is None:
                self._blocks[node] = block
                self._nodes[block] = node
                end = self._prompt_ends[block] = self._prompt_end(index, prompt_len)
                entered.append(node)
                whole = end == (index + 1) * self.block_size
                if self.prompts is not None and whole and not is_loaded:
                    self.prompts.append((node, block))
            else:
                _adopt(chain, index, self._nodes[present])
        if self.events is not None and entered:
            self.events.stored(entered)

    def evict(self, block: int) -> None:
        """Forgets what `block` held, if anything: it is about to be overwritten."""
        node = self._nodes.pop(block, None)
        if node is not None:
            del self._blocks[node], self._prompt_ends[block]
            if self.events is not None:
                self.events.evicted(node)

    def clear(self) -> None:
        if self.events is not None:
            self.events.cleared()
        self._blocks.clear()
        self._nodes.clear()
        self._prompt_ends.clear()
        if self.prompts is not None:
            self.prompts = []

    def enter(self, node: Node, block: int, index: int) -> bool:
        """Enters a block that a store has, as logical block `index`; False if that is there."""
        if node in self._blocks:
            return False
        self._blocks[node] = block
        self._nodes[block] = node
        self._prompt_ends[block] = self._prompt_end(index, ALL_PROMPT)
        if self.events is not None:
            self.events.stored([node])
        return True

    def _prompt_end(self, index: int, prompt_len: int) -> int:
        """Where the prompt ends for logical block `index`: at most at its end; MIXED stays so."""
        return min(prompt_len, (index + 1) * self.block_size)


def _adopt(chain: list[Node], index: int, node: Node) -> None:
    """Replaces a node by the cache's equal one, also as the parent of the next.

    Otherwise comparing the next node would walk both chains to their roots, and a lookup would
    take time quadratic in the prompt's length.
    """
    chain[index] = node
    if index + 1 < len(chain):
        chain[index + 1].parent = node
