"""Admission: which requests can be promised to finish.

(Not in the paper, which hopes; but its published code hangs when a request cannot fit. The rule
below makes "every accepted request finishes" a theorem, and the property tests look for a
counter-example.)

With nobody else in the pool, what is the most that a group can come to need? Say it becomes k
sequences of at most T tokens, so nb = ceil(T / B) blocks each. The last sampled token is never fed
to the model, hence T = prompt + max_tokens - 1. The f full blocks of the prompt are never written
again, so they are shared for ever; in the worst case all else is private:

    U = nb                    for k = 1
    U = f + k * (nb - f)      for k > 1

Besides, w blocks are the watermark, and k more is the head-room that the scheduler asks for before
it lets k sequences take a step ("each of them might need one more block"). So a group is certain to
finish if k <= max_num_seqs and

    U + k + w <= G

Without the "+ k" there are hangs. (That the tokens of a prompt fit into a step, if it must be
computed in one, is seen to by `scheduler_config` for all requests.)

A request for more samples than that is run in parts of k', the most that the rule admits. Each part
is a group that satisfies the rule, so it finishes; a request is a finite chain of parts, so it
finishes, too. (Nobody waits for ever for the others, either: there are finitely many parts before
anybody's turn.) Hence a request for samples is accepted if and only if the rule admits one of them.
The beams of a search need each other in every step: they are one part, or refused.

An adapter needs one slot (`adapter_slots`), for which its group waits as it waits for blocks:
behind running groups alone, each of which finishes. With nobody else there is a slot if there is
any, so a request with an adapter is refused only where max_loras is 0.

>>> blocks_at_most(prompt_len=7, max_tokens=10, num_samples=1, block_size=4, max_model_len=100)
4
>>> blocks_at_most(prompt_len=7, max_tokens=10, num_samples=3, block_size=4, max_model_len=100)
10

So of 100 samples of this request, two at a time fit into 11 blocks, three into 13:

>>> from types import SimpleNamespace
>>> config = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=16, max_model_len=100)
>>> group = SequenceGroup("r", list(range(7)), SimpleNamespace(n=100, best_of=None, max_tokens=10))
>>> [check_admission(group, BlockManager(4, size), config) for size in (5, 11, 13, 1000)]
[1, 2, 3, 8]
"""

from reference.blocks import BlockManager
from reference.scheduler_config import SchedulerConfig
from reference.sequence import SequenceGroup


class AdmissionError(ValueError):
    """A request that could never finish here; it was not accepted and left no trace.

    Attributes: `field` is what asks for too much, `need` how much, and `limit` what there is.
    """

    def __init__(self, group: SequenceGroup, field: str, need: int, limit: int, advice: str):
        super().__init__(
            f"request {group.request_id!r}: {field} = {need}, the limit is {limit}; {advice}"
        )
        self.field = field
        self.need = need
        self.limit = limit


def blocks_at_most(
    prompt_len: int,
    max_tokens: int | None,
    num_samples: int,
    block_size: int,
    max_model_len: int,
) -> int:
    """U: the most blocks that a request can hold at a time, all of its sequences together."""
    if max_tokens is None:
        max_tokens = max_model_len - prompt_len
    num_tokens = min(prompt_len + max_tokens - 1, max_model_len)
    num_blocks = -(-num_tokens // block_size)
    if num_samples == 1:
        return num_blocks
    shared = prompt_len // block_size
    return shared + num_samples * (num_blocks - shared)


def check_admission(group: SequenceGroup, blocks: BlockManager, config: SchedulerConfig) -> int:
    """How many of its samples to run at a time, so that it finishes whatever else there is to do.

    Raise AdmissionError if there is no such number.
    """

    def at_most(field: str, need: int, limit: int, advice: str) -> None:
        if need > limit:
            raise AdmissionError(group, field, need, limit, advice)

    def need_blocks(num_samples: int) -> int:
        most = blocks_at_most(
            prompt_len, max_tokens, num_samples, blocks.block_size, config.max_model_len
        )
        return most + num_samples + blocks.watermark_blocks

    prompt_len, max_tokens = group.prompt_len, group.params.max_tokens
    if prompt_len < 1:
        raise AdmissionError(group, "prompt_len", prompt_len, 1, "give at least one token")
    if group.adapter is not None:
        at_most("adapters", 1, config.max_loras, "ask for the model alone, or raise max_loras")
    # What is pooled draws no token that anybody sees, so its prompt may fill the context.
    room = 1 if getattr(group.params, "pooling", None) is None else 0
    at_most("prompt_len", prompt_len, config.max_model_len - room, "shorten the prompt")
    least = 1
    if group.beam_search:
        least = group.num_samples
        at_most("best_of", least, config.max_num_seqs, "search less wide, or raise max_num_seqs")
    advice = "lower max_tokens or the width of a search, or give the cache more blocks"
    at_most("GPU blocks", need_blocks(least), blocks.num_gpu_blocks, advice)
    size = min(group.num_samples, config.max_num_seqs)
    while need_blocks(size) > blocks.num_gpu_blocks:
        size -= 1
    return size
