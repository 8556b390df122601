"""Bugs in the schedulers, the admission rule and the stop rule.

Not planted, because nothing that can be seen after a step would change: swap-in without a look at
max_num_seqs (nobody was admitted since the group left, so its place is free), and siblings that are
attached by `update` instead of already at admission.
"""

from tests.mutation.planting import Mutant, plant

TESTS = ("tests/core", "tests/properties/test_scheduler_pair.py")
FOLDER = "jax_engine/core"

UNIFIED: list[Mutant] = plant(
    f"{FOLDER}/unified.py",
    TESTS,
    ("budget -= 1", "budget -= 0", "decodes cost no budget"),
    (
        "start, 1, group.samples_per_seq)",
        "start, 1, 1)",
        "a prompt whose last chunk is one token does not fork",
    ),
    ("while need > manager", "while need >= manager", "preempts although the blocks suffice"),
    ("if not out.preempted:", "if True:", "swaps in and admits right after a preemption"),
    ("waiting and not state.swapped:", "waiting:", "admits while others are swapped out"),
    (
        "max(1, new_blocks(state, seq, end)) for",
        "new_blocks(state, seq, end) for",
        "swap-in leaves no head-room for a sequence that needs no block yet",
    ),
    ("extra = len(seqs) - len(runs)", "extra = 0", "no head-room for those out of budget"),
    ("while state.swapped and budget > 0:", "while state.swapped:", "swaps in without budget left"),
    ("or not state.fits(group):", "or False:", "admission ignores max_num_seqs"),
    (
        "- len(hits) + manager.num_free_among(hits)",
        "- len(hits)",
        "admission counts hits in the free queue twice",
    ),
    (
        "- need < manager.watermark_blocks",
        "- need <= manager.watermark_blocks",
        "off by one at the watermark",
    ),
    (
        "seq.num_computed_tokens = cached_tokens",
        "seq.num_computed_tokens = 0",
        "cached tokens are computed again, into shared blocks",
    ),
    ("budget -= end - cached_tokens", "budget -= end", "cached tokens cost budget"),
    (
        "limits.long_prefill_token_threshold or rest)",
        "rest)",
        "the threshold of long prompts is ignored",
    ),
    ("return chunk if limits.chunked_prefill or chunk == rest else 0", "return chunk", "chunks"),
    ("budget -= chunk", "budget -= 0", "siblings share one budget, each for itself"),
    ("group = state.waiting[0]", "group = state.waiting[-1]", "the youngest is admitted first"),
    ("total - budget", "total", "the step claims its whole budget"),
)

SOSP: list[Mutant] = plant(
    f"{FOLDER}/sosp.py",
    TESTS,
    ("if not mixed and not state.swapped:", "if not mixed:", "admits while others are swapped"),
    ("if mixed and not state.swapped:", "if mixed:", "admits while others are swapped (mixed)"),
    ("if not out.preempted:", "if True:", "swaps in right after a preemption"),
    ("if length > budget or manager", "if manager", "a prompt step ignores the token budget"),
    (
        "- need < manager.watermark_blocks:\n            break",
        "- need <= manager.watermark_blocks:\n            break",
        "off by one at the watermark",
    ),
    (
        "while manager.num_free_gpu_blocks < len(seqs):",
        "while manager.num_free_gpu_blocks <= len(seqs):",
        "preempts although the blocks suffice",
    ),
    (
        "while manager.num_free_gpu_blocks < len(seqs):",
        "while manager.num_free_gpu_blocks < 1:",
        "one free block is thought to do for all sequences of a group",
    ),
    ("can_swap_in(seq_ids, len(seqs))", "can_swap_in(seq_ids, 0)", "swap-in without head-room"),
    (
        "need += -(-len(seq.token_ids) // manager.block_size) - shared",
        "need += -(-len(seq.token_ids) // manager.block_size)",
        "a rebuilt group's shared blocks count once for each sequence",
    ),
    ("if rest > budget:", "if False:", "a rebuild ignores the token budget"),
    (
        "len(seq.token_ids) - seq.num_computed_tokens > 1]",
        "len(seq.token_ids) - seq.num_computed_tokens > 0]",
        "a rebuild never ends",
    ),
    (
        "            if not out.scheduled:\n                budget = rebuild(",
        "            if True:\n                budget = rebuild(",
        "a rebuild runs beside other prompts",
    ),
    ("state.share_prompt(group)", "pass", "a rebuilt group shares nothing"),
)

PREEMPTION: list[Mutant] = plant(
    f"{FOLDER}/scheduler_state.py",
    TESTS,
    ("2 * num_blocks", "num_blocks", "swapping is one way"),
    ("if swap < recompute else", "if swap <= recompute else", "a tie is swapped"),
    ("return shared + sum(", "return sum(", "the shared prompt costs nothing"),
    (
        'return "swap" if group.forked else "recompute"',
        'return "recompute"',
        "forked groups are recomputed by default",
    ),
)

STATE: list[Mutant] = plant(
    f"{FOLDER}/scheduler_state.py",
    TESTS,
    ("group.reserved > self.limits", "group.reserved >= self.limits", "one sequence too few"),
    ("self.running.pop()", "self.running.pop(0)", "the oldest is preempted"),
    (
        "if self.rebuilding is group:",
        "if False:",
        "a part that has ended is still being rebuilt",
    ),
    (
        "set_status(SequenceStatus.WAITING)\n        insort(self.waiting, group, key=by_key)",
        "set_status(SequenceStatus.WAITING)\n        self.waiting.append(group)",
        "a preempted request goes to the end of the queue",
    ),
    ("seq.num_computed_tokens = 0", "pass", "recompute believes the tokens still computed"),
    ("seq.attached = False", "pass", "siblings run before their prompt is rebuilt"),
    (">= shared_tokens", "> shared_tokens", "siblings are attached one token late"),
    (">= shared_tokens", ">= 0", "siblings are attached before their prompt is computed"),
    (
        "seq.num_computed_tokens = shared * self.manager.block_size",
        "seq.num_computed_tokens = leader.num_computed_tokens",
        "a sibling believes the leader's own tokens to be its own",
    ),
    (
        "self.manager.free(seq.seq_id)\n        if",
        "if",
        "a finished sequence keeps its blocks",
    ),
    ("group.reserved -= 1", "pass", "finished siblings still count against max_num_seqs"),
    (
        "group.leader.attached = True",
        "pass",
        "a rebuild whose leader is finished waits for ever",
    ),
    (
        "if end == seq.num_tokens:",
        "if end >= seq.num_tokens - 1:",
        "a token is sampled before the prompt is computed",
    ),
    (
        "samples = group.samples_per_seq",
        "samples = group.num_samples",
        "a forked group forks again",
    ),
    ("cache_salt=group.cache_salt", "cache_salt=None", "full prompts are cached without salt"),
    (
        'if mode == "swap" and self.manager.can_swap_out(seq_ids):',
        'if mode == "swap":',
        "a full CPU pool ends the engine",
    ),
)

SCHEDULER: list[Mutant] = plant(
    f"{FOLDER}/scheduler.py",
    TESTS,
    (
        "arrival = (group.arrival_time, self._num_added)",
        "arrival = (group.arrival_time, -self._num_added)",
        "of equal arrivals the last is served first",
    ),
    ("(group.priority, *arrival)", "(-group.priority, *arrival)", "priorities upside down"),
    (
        "seq.num_computed_tokens += num_tokens",
        "seq.num_computed_tokens = len(seq.token_ids)",
        "a chunk counts as the whole prompt",
    ),
    (
        "            if seq.finish_reason is not None:\n                continue\n",
        "",
        "a request aborted during its step goes on",
    ),
    ("for seq in group.unfinished():", "for seq in group.unfinished()[:1]:", "abort ends one"),
    (
        "        if group.num_unattached:\n            self._state.attach(group)\n",
        "",
        "siblings of a recomputed group never come back",
    ),
)

DECODING: list[Mutant] = [
    *plant(
        f"{FOLDER}/decoding.py",
        TESTS,
        (
            "group.forked, group.samples_per_seq = True, 1",
            "group.samples_per_seq = 1",
            "a group that forked does not know it",
        ),
        ("if any([beam.candidates is None", "if all([beam.candidates is None", "no barrier"),
        ("elif place < search.width:", "else:", "ends beyond the first k become hypotheses"),
        ("if rank != last[parent]:", "if True:", "the parent's sequence is not handed on"),
        ("return live[: search.width]", "return live", "more beams than the width"),
        (
            '            state.end(seq, group, "abort")\n    for rank',
            "            pass\n    for rank",
            "losers stay",
        ),
        ("        seq.candidates = None\n", "", "a beam is taken for computed for ever"),
        ("if not search.hypotheses:", "if False:", "a search that found nothing has no outputs"),
    ),
    *plant(
        f"{FOLDER}/beam_search.py",
        TESTS,
        ("Choice(total + logprob", "Choice(logprob", "the past of a beam does not count"),
        ("-choice.value, choice.beam", "-choice.value, -choice.beam", "ties upside down"),
        ("/ seq.output_len**self", "/ len(seq.token_ids) ** self", "the prompt counts as output"),
        ("reach = longest if hopes else length", "reach = length", '"never" gives up early'),
        (
            "if len(self.hypotheses) < self.width:\n            return False",
            "if not self.hypotheses:\n            return False",
            "done with fewer than k hypotheses",
        ),
    ),
]

AHEAD: list[Mutant] = [
    *plant(
        f"{FOLDER}/scheduler.py",
        ("tests/properties/test_overlap.py",),
        ("seq.pending = -(row + 1)", "seq.pending = -(row + 2)", "takes its neighbour's token"),
        (
            "len(seq.token_ids) + 1 < group.stop.max_len:",
            "len(seq.token_ids) < group.stop.max_len:",
            "goes on after its last token by length",
        ),
        ("row += num_samples", "row += 1", "chunks of prompts are counted as samples"),
        (
            "seq.pending, seq.in_flight = 0, False",
            "pass",
            "a token that has come is still waited for",
        ),
    ),
    *plant(
        f"{FOLDER}/scheduler_state.py",
        ("tests/core/test_step_ahead.py", "tests/properties/test_overlap.py"),
        (
            "if status is not SequenceStatus.RUNNING:",
            "if False:",
            "ended while preempted by the step ahead: stays in its queue",
        ),
    ),
    *plant(
        f"{FOLDER}/block_manager.py",
        ("tests/properties/test_overlap.py",),
        (
            "full = min(num_tokens, len(token_ids)) // self.block_size",
            "full = num_tokens // self.block_size",
            "a block is cached without the token that is still being sampled",
        ),
    ),
]

RULES: list[Mutant] = [
    *plant(
        f"{FOLDER}/sequence.py",
        TESTS,
        ("if length >= self.max_len else", "if length > self.max_len else", "one token too many"),
        (
            "        if length >= self.min_len:\n",
            "        if self.max_len > length >= self.min_len:\n",
            "length comes before the end of sequence and stop tokens",
        ),
        ("if length >= self.min_len:", "if length > self.min_len:", "stops one token late"),
        (
            "frozenset(() if params.ignore_eos else eos_token_ids)",
            "frozenset(eos_token_ids)",
            "ignore_eos is ignored",
        ),
        ('return "stop", token', 'return "stop", None', "the stop token is not told"),
    ),
    *plant(
        f"{FOLDER}/admission.py",
        TESTS,
        (
            "room = 0 if group.params.drops_output else 1",
            "room = 0",
            "a prompt may fill the whole context",
        ),
        (
            "room = 0 if group.params.drops_output else 1",
            "room = 1",
            "a prompt that is pooled may not fill the whole context",
        ),
        ("if beams > limits.max_num_seqs:", "if False:", "more beams than may run"),
        ("per_seq - shared + 1", "per_seq - shared", "no head-room for k sequences"),
        (
            "need = manager.watermark_blocks + shared",
            "need = shared",
            "admission ignores the watermark",
        ),
        ("max_tokens - 1, max_model_len)", "max_tokens, max_model_len)", "one token too many"),
        (
            "per_seq, group.prompt_len // block_size",
            "per_seq, 0",
            "shared prompt blocks count once for each sample",
        ),
        (
            "limits.max_num_seqs, fitting)",
            "limits.max_num_seqs)",
            "a part may be larger than the pool",
        ),
        (
            "min(group.num_samples, limits.max_num_seqs, fitting)",
            "min(group.num_samples, fitting)",
            "a part may have more sequences than may run",
        ),
    ),
]

PARTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/sequence_group.py",
        TESTS,
        (
            "first = self.num_samples - self.num_left",
            "first = 0",
            "the samples of each part are numbered, and drawn, as those of the first",
        ),
        (
            "min(self.part_size, self.num_left)",
            "self.part_size",
            "the last part has as many samples as the others",
        ),
        (
            "prompt_len))\n        self.forked = False\n\n",
            "prompt_len))\n\n",
            "a part is taken for forked from the start",
        ),
    ),
    *plant(
        f"{FOLDER}/scheduler_state.py",
        TESTS,
        ("        self._remove(group, status)\n", "", "is in two queues"),
        ("if not group.num_left:", "if True:", "the last sequence of a part ends the request"),
        ("if group.beam is None:", "if True:", "beams that end leave their places to others"),
    ),
    *plant(
        f"{FOLDER}/scheduler.py",
        TESTS,
        ("group.num_left = 0", "pass", "a part follows after an abort"),
    ),
]

MUTANTS = [*PARTS, *UNIFIED, *SOSP, *STATE, *PREEMPTION, *SCHEDULER, *DECODING, *AHEAD, *RULES]
