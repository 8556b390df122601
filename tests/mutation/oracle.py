"""Wrong oracles: its own tests, those that are written by hand, must tell each from the right one.

Two engines that are wrong alike agree with each other.
"""

from tests.mutation.planting import Mutant, plant

TESTS = (
    "tests/reference/test_headroom.py",
    "tests/reference/test_blocks_cases.py",
    "tests/reference/test_scheduler_cases.py",
    "tests/reference/test_admission.py",
    "tests/reference/test_preemption_costs.py",
    "tests/reference/test_prefix_cache.py",
    "tests/reference/test_prompt_logprobs.py",
    "tests/reference/test_random_numbers.py",
    "tests/reference/test_engine.py",
    "-mnot hypothesis",
)

SPECULATION_TESTS = (
    "tests/reference/test_speculation.py",
    "tests/reference/test_speculation_engine.py",
    "tests/reference/test_blocks_cases.py",
    "-mnot hypothesis",
)

SAMPLING_TESTS = ("tests/reference/test_sampling.py", "-mnot hypothesis")

MUTANTS: list[Mutant] = [
    *plant(
        "reference/blocks.py",
        TESTS,
        (
            "(len(blocks) + extra) >= self.watermark_blocks",
            "(len(blocks) + extra) >= 0",
            "swap-in without the watermark",
        ),
        ("(len(blocks) + extra) >=", "len(blocks) >=", "swap-in without head-room"),
        (
            "len(blocks) <= self.num_free_cpu_blocks",
            "len(blocks) < self.num_free_cpu_blocks",
            "the last CPU block is never used",
        ),
        ("reversed(table.blocks)", "table.blocks", "a sequence frees its first block first"),
    ),
    *plant(
        "reference/scheduler_unified.py",
        TESTS,
        ("max(1, new_blocks)", "new_blocks", "no head-room for a sequence with room left"),
        ("if not output.preempted:", "if True:", "admits right after a preemption"),
        (
            "- need >= blocks.watermark_blocks",
            "- need >= 0",
            "admission without the watermark",
        ),
        (
            "if group.num_cached_tokens == -1:",
            "if True:",
            "cached tokens are overwritten on readmission",
        ),
    ),
    *plant(
        "reference/scheduler_sosp.py",
        TESTS,
        ("extra=len(seq_ids)", "extra=0", "the published swap-in without head-room"),
        (
            "- need >= state.blocks.watermark_blocks",
            "- need >= 0",
            "the published admission without the watermark",
        ),
        (
            "num_free_gpu_blocks < len(_behind(group))",
            "num_free_gpu_blocks < 1",
            "a decode step asks for one block for the whole group",
        ),
    ),
    *plant(
        "reference/scheduler_state.py",
        TESTS,
        ("self.running.pop()", "self.running.pop(0)", "the oldest gives way"),
        ("2 * num_blocks * costs", "num_blocks * costs", "swapping costs one way only"),
    ),
    *plant(
        "reference/sequence.py",
        TESTS,
        (
            "-sum(seq.logprobs))",
            "-sum(seq.logprobs) / len(seq.logprobs))",
            "best_of by mean log-probability",
        ),
        (
            "len(self.unfinished) if alive else self.num_samples_now",
            "self.num_samples_now",
            "sequences that ended keep their place",
        ),
    ),
    *plant(
        "reference/admission.py",
        TESTS,
        ("return most + num_samples + blocks", "return most + blocks", "admission, no head-room"),
        ("+ num_samples + blocks.watermark_blocks", "+ num_samples", "admission, no watermark"),
        (
            "size = min(group.num_samples, config.max_num_seqs)",
            "size = group.num_samples",
            "a part of more samples than may run",
        ),
    ),
    *plant(
        "reference/prefix_cache.py",
        TESTS,
        (" and entry.salt == salt", "", "two salts share a block when their hashes collide"),
        ("(len(token_ids) - 1) // self", "len(token_ids) // self", "a full hit leaves no token"),
    ),
    *plant(
        "reference/engine.py",
        TESTS,
        ("derive_seed(seed, seq.index + i)", "derive_seed(seed, i)", "all parts draw alike"),
        ("self.seed, group.add_index)", "self.seed, 0)", "one seed for all unseeded requests"),
        ("wanted[position + 1] =", "wanted[position] =", "prompt log-probabilities, shifted"),
    ),
    *plant(
        "reference/random_numbers.py",
        TESTS,
        ("(first ^ second) >> 9", "first >> 9", "half of the cipher's bits"),
        ("(seed // WORD, seed % WORD)", "(0, seed % WORD)", "the upper half of a seed is lost"),
    ),
    *plant(
        "reference/speculation.py",
        SPECULATION_TESTS,
        ("if draft != token:", "if draft != token_behind:", "a draft is held to the wrong token"),
        ("tokens_to_come - 1", "tokens_to_come", "the last token that fits is drafted"),
        ("takers and not output.preempted", "takers", "drafts in a step that preempts"),
        (
            "blocks.num_free_gpu_blocks - blocks.watermark_blocks",
            "blocks.num_free_gpu_blocks",
            "drafts take the watermark",
        ),
        ("min(each, budget, ", "min(each, ", "drafts go beyond the budget"),
        (
            "state.config.max_draft_tokens // len(takers)",
            "state.config.max_draft_tokens",
            "each sequence drafts for all",
        ),
        (
            "seq.token_ids, known, known",
            "[*seq.token_ids, *drafts], known, known",
            "a block with drafts in it is cached",
        ),
        (
            "seq.token_ids, known, known",
            "seq.token_ids, entry.start, known",
            "a hit on the block before the drafts is copied",
        ),
        (
            "(*state.running, *state.swapped, *state.waiting)",
            "state.running",
            "who is preempted keeps guesses",
        ),
        ("range(last - 1, -1, -1)", "range(last)", "n-grams: the first place, not the last"),
    ),
    *plant(
        "reference/scheduler.py",
        SPECULATION_TESTS,
        (
            "trim(entry.seq.seq_id, entry.seq.num_computed_tokens)",
            "block_table(entry.seq.seq_id)",
            "no trim after drafts",
        ),
        (
            "offer(seq.seq_id, computed, ",
            "offer(seq.seq_id, seq.token_ids, ",
            "what is not computed is cached",
        ),
    ),
    *plant(
        "reference/blocks.py",
        SPECULATION_TESTS,
        (
            "self.gpu.free(table.blocks.pop(), is_next=True)",
            "self.gpu.free(table.blocks.pop(self.num_blocks_for(num_tokens)), is_next=True)",
            "a trim gives the first block back first",
        ),
    ),
    *plant(
        "reference/engine.py",
        SPECULATION_TESTS,
        ("[*seq.output_token_ids, *drawn]", "seq.output_token_ids", "a draw that knows no drafts"),
        (
            "zip(new_tokens, logits, strict=False)",
            "zip(new_tokens, [logits[0]] * 99, strict=False)",
            "log-probabilities of the first draw for all",
        ),
    ),
    *plant(
        "reference/sampling.py",
        SAMPLING_TESTS,
        (
            "possible = logits[logits > -np.inf]",
            "possible = np.maximum(logits, -100.0)",
            "forbidden tokens count in the deviation",
        ),
        ("logits >= possible.max()", "logits > possible.max()", "the border is left out"),
        (
            "keep_top_k(kept, params.top_k)",
            "keep_top_k(edited / params.temperature, params.top_k)",
            "top-k forgets what top-n-sigma cut",
        ),
    ),
]
