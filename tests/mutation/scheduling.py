"""Bugs in the schedulers, the admission rule and the stop rule.

Not planted, because nothing that can be seen after a step would change: swap-in without a look at
max_num_seqs (nobody was admitted since the group left, so its place is free), and siblings that are
attached by `update` instead of already at admission.
"""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/core", "tests/properties/test_scheduler_pair.py")
FOLDER = "jax_engine/core"

UNIFIED: list[Mutant] = plant(f"{FOLDER}/unified.py", TESTS,
    ("start, 1, group.samples_per_seq)", "start, 1, 1)",
     "a prompt whose last chunk is one token does not fork"),
    ("seq.num_computed_tokens = cached_tokens", "seq.num_computed_tokens = 0",
     "cached tokens are computed again, into shared blocks"),
    ("group = state.waiting[0]", "group = state.waiting[-1]", "the youngest is admitted first"),
)  # fmt: skip

SOSP: list[Mutant] = plant(f"{FOLDER}/sosp.py", TESTS,
    ("while manager.num_free_gpu_blocks < len(seqs):", "while manager.num_free_gpu_blocks < 1:",
     "one free block is thought to do for all sequences of a group"),
    ("can_swap_in(seq_ids, len(seqs))", "can_swap_in(seq_ids, 0)", "swap-in without head-room"),
)  # fmt: skip


STATE: list[Mutant] = plant(f"{FOLDER}/scheduler_state.py", TESTS,
    ("self.running.pop()", "self.running.pop(0)", "the oldest is preempted"),
    ("set_status(SequenceStatus.WAITING)\n        insort(self.waiting, group, key=by_key)",
     "set_status(SequenceStatus.WAITING)\n        self.waiting.append(group)",
     "a preempted request goes to the end of the queue"),
    (">= shared_tokens", ">= 0", "siblings are attached before their prompt is computed"),
    ("seq.num_computed_tokens = shared * self.manager.block_size",
     "seq.num_computed_tokens = leader.num_computed_tokens",
     "a sibling believes the leader's own tokens to be its own"),
    ("if end == seq.num_tokens:", "if end >= seq.num_tokens - 1:",
     "a token is sampled before the prompt is computed"),
    ("samples = group.samples_per_seq", "samples = group.num_samples",
     "a forked group forks again"),
    ("cache_salt=group.cache_salt", "cache_salt=None", "full prompts are cached without salt"),
)  # fmt: skip

SCHEDULER: list[Mutant] = plant(f"{FOLDER}/scheduler.py", TESTS,
    ("arrival = (group.arrival_time, self._num_added)",
     "arrival = (group.arrival_time, -self._num_added)",
     "of equal arrivals the last is served first"),
    ("(group.priority, *arrival)", "(-group.priority, *arrival)", "priorities upside down"),
    ("seq.num_computed_tokens += num_tokens", "seq.num_computed_tokens = len(seq.token_ids)",
     "a chunk counts as the whole prompt"),
    ("for seq in group.unfinished():", "for seq in group.unfinished()[:1]:", "abort ends one"),
)  # fmt: skip

DECODING: list[Mutant] = [
    *plant(f"{FOLDER}/decoding.py", TESTS,
        ("return live[: search.width]", "return live", "more beams than the width"),
    ),
    *plant(f"{FOLDER}/beam_search.py", TESTS,
        ("-choice.value, choice.beam", "-choice.value, -choice.beam", "ties upside down"),
        ("/ seq.output_len**self", "/ len(seq.token_ids) ** self", "the prompt counts as output"),
        ("if len(self.hypotheses) < self.width:\n            return False",
         "if not self.hypotheses:\n            return False", "done with fewer than k hypotheses"),
    ),
]  # fmt: skip

AHEAD: list[Mutant] = [
    *plant(f"{FOLDER}/scheduler.py", ("tests/properties/test_overlap.py",),
        ("row += num_samples", "row += 1", "chunks of prompts are counted as samples"),
    ),
]  # fmt: skip

RULES: list[Mutant] = [
    *plant(f"{FOLDER}/sequence.py", TESTS,
        ("        if length >= self.min_len:\n",
         "        if self.max_len > length >= self.min_len:\n",
         "length comes before the end of sequence and stop tokens"),
        ('return "stop", token', 'return "stop", None', "the stop token is not told"),
    ),
    *plant(f"{FOLDER}/admission.py", TESTS,
        ("max_tokens - 1, max_model_len)", "max_tokens, max_model_len)", "one token too many"),
        ("limits.max_num_seqs, fitting)", "limits.max_num_seqs)",
         "a part may be larger than the pool"),
        ("min(group.num_samples, limits.max_num_seqs, fitting)", "min(group.num_samples, fitting)",
         "a part may have more sequences than may run"),
    ),
]  # fmt: skip


MUTANTS = [*UNIFIED, *SOSP, *STATE, *SCHEDULER, *DECODING, *AHEAD, *RULES]
