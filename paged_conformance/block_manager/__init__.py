"""Block managers: who holds which block, and what does it hold? This is the contract.

A target is made by `make(block_size=B, num_blocks=N, num_swap_blocks=S)`. All methods take keyword
arguments and plain JSON values. N is what the target is asked for; what it can hand out it says as
`capacity()` (an engine may keep a block for itself). Sequences are small integers, used again after
they were freed. Tokens are integers from 0.

A method raises `Refused` where the target says no. Nothing has changed then. Any other exception is
a failure.

    capacity() -> int                   blocks that sequences can have, all together
    num_free() -> int                   blocks that can be had now: held by no sequence
    open(seq, tokens, chunk, salt, adapter) -> {"hit": tokens}
    extend(seq, tokens, chunk, guesses) -> [[source, destination], ..]
    computed(seqs, accepted) -> None    the step is over
    table(seq) -> [block, ..]           in logical order; [] for a sequence that has none
    free(seq) -> None                   may be called again: a no-op, or refused
    match(tokens, salt, adapter) -> int                  with `match`
    fork(parent, child) -> [[source, destination], ..]   with `fork`
    swap_out(seqs) -> [[source, destination], ..]        with `swap`
    swap_in(seqs) -> [[source, destination], ..]         with `swap`
    num_free_swap() -> int                               with `swap`
    reset() -> bool                                      with `reset`

**A step** is any number of `open` and `extend`, at most one a sequence, then one `computed` with
the sequences that are still there, in the order in which they were scheduled. What they scheduled
is written into their blocks between the last of these calls and `computed`, all of it before any of
it is read. Frees, forks and swaps come between steps, or before a step's end for sequences that are
not part of it. A sequence may be aborted while the step runs: `free` comes after the last `open`
and `extend`, before `computed`; its tokens are written nevertheless.

- `open`: the sequence's known tokens are `tokens`, at least one. The target looks for the longest
  prefix that lies in full blocks, finds `hit` tokens of it, and gets the sequence blocks so that
  the positions hit to min(len(tokens), hit + chunk) can be written. It may take blocks for all
  `tokens` at once. Without `chunks`, `chunk` is len(tokens). One token at least is left to compute.
- `extend`: `tokens` (maybe none) are appended to the known ones, and the next `chunk` positions of
  the known tokens can be written. `tokens` are given only when all others have been scheduled;
  they are then `chunk` tokens, and one unless the target has `several`. `guesses` (with `guesses`)
  are tokens that may follow: their positions are written as well. The copies that it returns are
  made at once, before the step's writes. If it is refused, `tokens` are not known to the target.
- `computed`: `accepted[i]` of the guesses of `seqs[i]` are right. They have become known, computed
  tokens; the positions behind them hold nothing.
- `free`: gives up all of a sequence, whatever it is in the middle of.
- `fork`: the child has all tokens and all blocks of the parent; the parent is not in a step. A fork
  may copy all blocks that are not full yet at once, or share them until one of them writes. It may
  be refused if there are not that many free blocks.
- `swap_out` and `swap_in` move all forks of one sequence together; their pairs are copied at once.
- `match`: the tokens that `open` would find now. Changes nothing but, perhaps, recency.
- `reset`: forgets what is cached, or returns False and changes nothing.

What is not asked for: any order of free blocks (without `lru`); which of several blocks of equal
content is found; that a prefix is found when its sequence has ended (without `keeps`), while others
take blocks (without `exact_hits`), or when its sequence had its text in one block already and took
another one that held it; when a block enters the cache, which may be when it is taken, when it is
computed, or when its sequence ends.

`make.sizes` may have `min_block_size`, `max_block_size`, `max_blocks`, `watermark_blocks` (so many
free blocks may be left to `open` and `swap_in` as head-room) and `spare_blocks` (a table may be
that much longer than its tokens need).
"""

from paged_conformance.block_manager.contents import CONTENTS
from paged_conformance.block_manager.moves import MOVES
from paged_conformance.block_manager.pools import POOLS
from paged_conformance.properties import Property

__all__ = ["CAPABILITIES", "PROPERTIES"]

PROPERTIES: tuple[Property, ...] = (*POOLS, *CONTENTS, *MOVES)

CAPABILITIES: dict[str, str] = {
    "prefix_cache": "Finds prefixes of full blocks that earlier sequences have computed.",
    "keeps": "Finds what ended sequences have computed too, at least while nobody takes a block.",
    "chunks": "A prompt can be computed in several steps.",
    "several": "`extend` can be given several known tokens at once.",
    "guesses": "Tokens that were guessed can be written behind the known ones.",
    "fork": "A sequence can share another's blocks, with a copy when one of them writes.",
    "swap": "Sequences can be moved to a second pool and back.",
    "salts": "Sequences of different salts share nothing.",
    "adapters": "Sequences of different adapters share nothing.",
    "match": "Says what would be found, without taking it.",
    "reset": "Can forget all that is cached.",
    "exact_hits": "Cached content is found until its block is handed out again, and no block is "
    "handed out but to be written.",
    "lru": "Of cached blocks, the one that has been free for longest is handed out first; of one "
    "sequence, its last block.",
    "remaps": "`computed` may put other blocks with equal content into a table.",
    "lazy": "Freed blocks may be counted as free only after the next `computed`.",
    "strict": "Misuse is refused: a fork into an id in use, a write to a swapped-out sequence.",
    "unschedule": "A sequence may be freed before its step has begun; what it scheduled is never "
    "written.",
}
