"""Schedulers: who computes which tokens in the next step, and in which blocks.

A target is one scheduler with the memory that it hands out. `make(**sizes)` makes it; the methods
take keyword arguments and plain JSON values (`protocol.Scheduler` has the types).

The sizes are `max_num_seqs` (rows of a step at most, each a sequence), `max_num_batched_tokens`
(tokens of a step at most; never fewer than max_num_seqs, and never fewer than max_model_len where
prompts are not chunked), `max_model_len` (prompt and output), `block_size`, `num_blocks` (usable
ones: an adapter adds blocks that its scheduler keeps for itself), `swap_blocks` (on the CPU; 0: no
swapping), `policy` ("fcfs", or "priority": smaller first, then by arrival), `chunked` (prompts may
be spread over steps), `threshold` (most tokens of a prompt in a step; 0: no limit), `prefix_cache`,
`max_drafts` (of a sequence, in a step), `max_adapters` (different ones in a step; 0: none at all),
and `ahead` (a second plan is made before the first one's tokens are known).

**add** takes a request: `id`, unique among the unfinished ones, which comes back later;
`prompt`, of at least one token; `max_tokens`; `ignore_eos` (else token 1 ends it);
`stop_token_ids`; `priority`; `arrival`, a number that rises; `samples`; `adapter`, 0 is none;
`salt`: requests with another one share no cache. The adapter raises `Refused` where its scheduler
says no. Only requests that would fit if they were alone are added (for each sequence there is a
block to spare), unless the target has `admission`. **abort** ends a request at any time.

**schedule** returns the plan of a step, `{"rows": [..]}`, with

- `rows`, each with `id`, `start` (the first position), `tokens` (how many positions, the drafts
  included), and where it applies `sample` (0 if left out), `drafts` (those of the drafts offered
  that this row verifies), `draws` (how many tokens are drawn behind its last position: as many as
  samples where a request forks; left out: one if all tokens are computed, else none), `table` (the
  blocks of the sequence, from its first position on: those that *whoever runs the model* has been
  told of, so an adapter adds up what plans say);
- `preempted`, requests that lost their blocks in this plan, `{"id": .., "how": "recompute" or
  "swap"}`. What was preempted is computed from the start again, or from what the cache has;
- `swap_in`, `swap_out`, `copies`: pairs of blocks, source first, carried out in this order, before
  anything is written.

Rows come in any order. All rows write their keys and values before any row reads, so a row may take
from the cache what another row of the same step computes. A row is computed from where the last one
ended; drafts that were wrong do not count. Empty plans are allowed, but not more than two after
each other while requests wait (`make.sizes["empty_steps"]`).

`drafts` of **schedule** are guesses for sequences whose other tokens are computed, `{"id": ..,
"sample": .., "tokens": [..]}`. The scheduler may use some, from the first on, or none, and may
fill a row up with drafts of -1, which are never right. Drafts beyond max_tokens are allowed, those
beyond max_model_len are not.

**update** takes what the oldest plan has drawn, an item for each sequence that draws: `{"id": ..,
"sample": .., "tokens": [..], "row": ..}`, where `row` is the sample of its row (other than `sample`
where a request forks). Behind drafts there are the accepted ones and one more. Items of requests
that were aborted meanwhile are among them, and do nothing. It returns the sequences that ended by
this, `{"id": .., "sample": .., "reason": "stop" or "length", "tokens": ..}`; reason and tokens (the
whole output) may be left out. A sequence ends with the first token that ends it; others are
dropped.

**state** returns `{"unfinished": [ids], "free_blocks": .., "num_blocks": ..}`, at any time. Blocks
that the prefix cache remembers and that nobody uses are free.

`make.capabilities` has words of `CAPABILITIES`, and `make.sizes` may have `min_block_size` (1),
`max_block_size` (8) and `empty_steps` (2).
"""

from paged_conformance.scheduler.holds import PROPERTIES
from paged_conformance.scheduler.words import CAPABILITIES

__all__ = ["CAPABILITIES", "PROPERTIES"]
