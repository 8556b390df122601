"""Speculation: guess the next tokens, and compute the guesses beside the token that is known.

(Not in the paper; Leviathan et al. and Chen et al., 2023. Here in its exact form.)

A decoding step reads all weights to compute one token of each sequence. It would read them for a
few tokens more just as well, were those tokens known. So somebody, the *drafter*, guesses them: a
*draft* is a guess for a token behind the last one. A sequence with m drafts feeds 1 + m tokens, and
a token is drawn behind each of them, as if the drafts before it were its output. The first draw is
right in any case. If it is what the first draft was, the second draw is right, too, since it was
made behind the right tokens; and so on, up to the first draft that is wrong.

Of one known token, 5, and three drafts, 6, 7, 8, behind which 6, 7, 9 and 4 are drawn:

>>> accepted([6, 7, 8], [6, 7, 9, 4])                # 8 is wrong: it should have been a 9
[6, 7, 9]
>>> accepted([1, 7, 8], [6, 7, 9, 4]), accepted([6, 7, 9], [6, 7, 9, 4]), accepted([], [6])
([6], [6, 7, 9, 4], [6])

A token is drawn with the random number of its position, and the logits behind it depend on the
tokens before it alone. So each sequence gets the tokens that it would have got without drafts,
greedy or not, whatever was guessed; the guesses only decide how many steps that takes.

Drafts take what a step has to spare, and never anything from anybody:

1. The step is planned without them first. If it preempts, there are no drafts in it.
2. An entry may take drafts if it feeds nothing but the last token of an output. The setting
   `max_draft_tokens` is divided evenly among those for which there are guesses.
3. In the order of the step, each takes the first of its guesses: no more than its share, and no
   more than the budget has left. They must fit into its blocks and the free ones above the
   watermark. And the last token that the sequence can have is no draft: it is drawn behind one.
4. No block with a draft in it is offered to the prefix cache. After the step, a sequence that goes
   on gives back the blocks behind its computed tokens (`trim`), and offers those that are full of
   them. So the next step finds the tables that it would find without drafts.

A sequence of 6 tokens has five guesses, of which four fit into a step of 5 tokens. It has blocks
for 8 tokens, and takes one more:

>>> from types import SimpleNamespace
>>> from reference.blocks import BlockManager
>>> from reference.scheduler_config import SchedulerConfig
>>> from reference.sequence import SequenceStatus
>>> params = SimpleNamespace(n=1, best_of=None, max_tokens=20)
>>> state = SchedulerState(BlockManager(4, 10), SchedulerConfig(4, 5, 32, max_draft_tokens=8))
>>> group = SequenceGroup("r", [3, 1, 4, 1, 5], params)
>>> group.leader.append(9)
>>> _ = state.blocks.allocate_slots(group.leader.seq_id, group.leader.token_ids, 0, 5)
>>> group.leader.num_computed_tokens, group.leader.drafts = 5, [2, 6, 5, 3, 5]
>>> state.enter(group, SequenceStatus.RUNNING)
>>> output = SchedulerOutput()
>>> state.schedule_tokens(group, group.leader, 1, output)
>>> plan_drafts(state, output)
>>> [(entry.start, entry.token_ids, entry.num_drafts) for entry in output.scheduled]
[(5, [9, 2, 6, 5, 3], 4)]
>>> state.blocks.block_table(group.leader.seq_id), group.leader.drafts
([9, 8, 7], [])

The simplest drafter is no model at all: text repeats itself (`ngram_drafts`, "prompt lookup").
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import replace

from reference.scheduler_state import ScheduledSequence, SchedulerOutput, SchedulerState
from reference.sequence import Sequence, SequenceGroup, longest_output


def accepted(drafts: SequenceOf[int], drawn: SequenceOf[int]) -> list[int]:
    """The tokens that count of those drawn behind the last token and behind each draft."""
    taken = list(drawn[:1])
    for draft, token, token_behind in zip(drafts, drawn, drawn[1:], strict=False):
        if draft != token:
            break
        taken.append(token_behind)
    return taken


def may_draft(group: SequenceGroup, seq: Sequence) -> bool:
    """Has it only the last token of an output to compute? Beams go their own ways, and a drafter
    knows nothing of vectors.
    """
    if group.beam_search or group.prompt_embeds is not None:
        return False
    return seq.output_len > 0 and seq.num_uncomputed_tokens == 1


def ask_for_drafts(
    drafter: Callable[[list[int]], SequenceOf[int]], running: Iterable[SequenceGroup]
) -> None:
    """Before a step is planned: have guesses for each sequence that may take drafts."""
    for group in running:
        for seq in group.unfinished:
            if may_draft(group, seq):
                seq.drafts = list(drafter(list(seq.token_ids)))


def plan_drafts(state: SchedulerState, output: SchedulerOutput) -> None:
    """Give drafts what is left of a step that is planned otherwise; forget those not taken."""
    takers = [
        at
        for at, entry in enumerate(output.scheduled)
        if entry.seq.drafts and may_draft(entry.group, entry.seq)
    ]
    if takers and not output.preempted:
        each = state.config.max_draft_tokens // len(takers)
        for at in takers:
            output.scheduled[at] = _with_drafts(state, output, output.scheduled[at], each)
    for group in (*state.running, *state.swapped, *state.waiting):
        for seq in group.seqs:
            seq.drafts = []


def _with_drafts(
    state: SchedulerState, output: SchedulerOutput, entry: ScheduledSequence, each: int
) -> ScheduledSequence:
    """The entry with as many of its drafts, at most `each`, as there is room for."""
    seq, blocks = entry.seq, state.blocks
    known = len(seq.token_ids)
    budget = state.config.max_num_batched_tokens - output.num_batched_tokens
    tokens_to_come = longest_output(entry.group, state.config.max_model_len) - seq.output_len
    spare = max(0, blocks.num_free_gpu_blocks - blocks.watermark_blocks)
    slots = (len(blocks.block_table(seq.seq_id)) + spare) * blocks.block_size
    most = min(each, budget, tokens_to_come - 1, slots - known)
    drafts = tuple(seq.drafts[:most])
    copies = blocks.allocate_slots(seq.seq_id, seq.token_ids, known, known + len(drafts))
    assert copies == [], "drafts were planned without blocks of their own"
    return replace(entry, num_tokens=1 + len(drafts), drafts=drafts)


def ngram_match(
    token_ids: SequenceOf[int], prompt_lookup_min: int, prompt_lookup_max: int
) -> tuple[int, int] | None:
    """Where the end of a text stood before: the first position, and how many tokens are alike.

    The longest end that was there before counts, of prompt_lookup_max tokens down to
    prompt_lookup_min, and of several places the last. None where there is none. Raises ValueError
    unless 1 <= prompt_lookup_min <= prompt_lookup_max.

    >>> ngram_match([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 1, 2)       # 2 3 stood at 1, and then at 4
    (4, 2)
    >>> ngram_match([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 1, 3)       # but 1 2 3 at 0
    (0, 3)
    """
    if not 1 <= prompt_lookup_min <= prompt_lookup_max:
        raise ValueError(
            f"prompt_lookup_min={prompt_lookup_min} must be at least 1 and at most "
            f"{prompt_lookup_max} = prompt_lookup_max"
        )
    tokens = list(token_ids)
    for n in range(prompt_lookup_max, prompt_lookup_min - 1, -1):
        last = len(tokens) - n
        for start in range(last - 1, -1, -1):
            if tokens[start : start + n] == tokens[last:]:
                return start, n
    return None


def ngram_drafts(
    token_ids: SequenceOf[int], num_drafts: int, prompt_lookup_min: int, prompt_lookup_max: int
) -> list[int]:
    """`num_drafts` tokens: those that came behind `ngram_match`, or none where there is none.

    Where they reach the end they go on with themselves, as a text does that repeats itself.
    Raises ValueError as `ngram_match`.

    >>> ngram_drafts([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 3, 1, 2)       # 2 3 came last before 8
    [8, 1, 2]
    >>> ngram_drafts([1, 2, 3, 9, 2, 3, 8, 1, 2, 3], 3, 1, 3)       # but 1 2 3 before 9
    [9, 2, 3]
    >>> ngram_drafts([4, 4, 4], 3, 1, 2), ngram_drafts([4, 5, 6], 3, 1, 2)
    ([4, 4, 4], [])
    """
    match = ngram_match(token_ids, prompt_lookup_min, prompt_lookup_max)
    if match is None:
        return []
    behind = token_ids[sum(match) :]
    return [behind[i % len(behind)] for i in range(num_drafts)]
