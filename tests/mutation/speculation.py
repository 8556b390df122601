"""Bugs in drafts: who gets some, what of them counts, and what they leave behind."""

from tests.mutation.planting import Mutant, plant

PAIRS = ("tests/engine/test_speculation_pairs.py", "-k=an_option")
SCHEDULERS = ("tests/core/test_drafts.py",)
BLOCKS = ("tests/properties/test_block_manager_pair.py",)
PLAN = ("tests/worker/test_step_plan.py", "-k=guesses")
SPECULATOR = ("tests/speculation/test_speculator.py",)

CONTROLLER: list[Mutant] = [
    *plant(
        "jax_engine/core/drafts.py",
        SCHEDULERS,
        ("    if out.preempted:\n        return\n", "", "drafts beside a preemption"),
        ("max_draft_tokens // len(places)", "max_draft_tokens", "the first row takes all drafts"),
        ("stop.max_len - length - 1", "stop.max_len - length", "a draft is the last token"),
        ("manager.num_free_gpu_blocks - manager.watermark_blocks", "manager.num_free_gpu_blocks",
         "drafts take the watermark"),
        ("            budget -= len(chosen)\n", "", "each row has the whole budget"),
        ("        if draft != token:\n            break\n", "", "wrong drafts are accepted"),
    ),
    *plant(
        "jax_engine/core/scheduler.py",
        SCHEDULERS,
        ("if tokens and seq.finish_reason is None:", "if tokens:", "tokens behind the end"),
        ("                seq.num_computed_tokens += 1\n                if self._append",
         "                if self._append", "accepted drafts count as not computed"),
        ("                self.block_manager.trim(seq.seq_id, computed)\n", "",
         "blocks of wrong drafts are kept"),
        ("num_tokens - len(drafts))", "num_tokens)", "wrong drafts count as computed"),
    ),
    *plant(
        "jax_engine/core/block_pool.py",
        BLOCKS,
        ("                self._free.move_to_end(block, last=self._newest_first)\n",
         "                pass\n", "wrong drafts push cached blocks out"),
    ),
    *plant(
        "jax_engine/core/block_table.py",
        BLOCKS,
        ("        removed = self.ids[num_blocks:]\n        del self.ids[num_blocks:]\n",
         "        removed = self.ids[num_blocks + 1 :]\n        del self.ids[num_blocks + 1 :]\n",
         "a block too many is kept"),
    ),
]  # fmt: skip

ENGINE: list[Mutant] = [
    *plant(
        "jax_engine/engine/step_masks.py",
        PAIRS,
        ("[*self.item.seq.output_token_ids, *self.drafts]", "self.item.seq.output_token_ids",
         "bad words do not see drafts"),
        ("found.append(ConstrainedSamples(item, its, place, item.drafts[:i]))", "pass",
         "draws behind drafts may be anything"),
        ("(behind(matcher, part.drafts), part)", "(matcher, part)", "grammars do not see drafts"),
    ),
    *plant(
        "jax_engine/engine/step_outputs.py",
        PAIRS,
        ("rows[item.seq.seq_id] + 1)", "rows[item.seq.seq_id])",
         "all tokens have the first one's numbers"),
        ("    while sampled:\n", "    if sampled:\n", "accepted tokens are not looked at"),
    ),
    *plant(
        "jax_engine/core/make_step.py",
        PAIRS,
        ("range(token - len(drafts), token + 1)", "[token] * num_tokens",
         "all draws are behind the last draft"),
        ("[*seq.token_ids, *drafts] if", "[*seq.token_ids] if", "penalties do not see drafts"),
    ),
    *plant(
        "jax_engine/worker/step_plan.py",
        PLAN,
        ("row._replace(start=row.start + i,", "row._replace(start=row.start,",
         "drafts are at the position of their row"),
        ("tables += [table] * (1 + row.num_draft)", "tables += [table]", "drafts have no table"),
        ("seqs = count + sum([row.num_draft for row in rows])", "seqs = count",
         "a step with guesses is compiled as a mixed one"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        SPECULATOR,
        ("if not 0 <= token < self._vocab_size:", "if not 0 <= token:", "a guess is no token"),
        ("            self._drafter.forget(ended)\n", "", "drafters remember all that ended"),
    ),
]  # fmt: skip

PREDICTIONS: list[Mutant] = [
    *plant(
        "jax_engine/speculation/prediction.py",
        ("tests/speculation/test_prediction.py",),
        ("            place.at += 1\n", "            pass\n", "an answer stays at a token"),
        ("            place.inside = False\n", "", "an answer never leaves the text"),
        ("ends[ends >= at]", "ends[ends >= 0]", "an answer goes back to the first place"),
        ("if length >= SHORTEST:", "if length >= 1:", "one token is enough to be back"),
        ("            place.num_accepted += 1\n", "        place.num_accepted += 1\n",
         "of right guesses one counts"),
        ("        place.guessed = False\n        for", "        for",
         "guesses of a drafter count as the prediction's"),
        ("range(place.at - length, place.at)", "range(place.at - 1, place.at)",
         "tokens that led back were not said"),
        ("get(seq.index)\n        if place is None:", "get(0)\n        if place is None:",
         "samples share a place"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        SPECULATOR,
        ("            if seq.seq_id not in drafts\n", "", "a drafter is asked beside a prediction"),
        ("(item.drafts or prediction is None)", "True", "who left a prediction rests"),
    ),
    *plant(
        "jax_engine/engine/results.py",
        ("tests/engine/test_predictions.py",),
        ("shown = finished and self._params.is_ranked, seqs[: self._params.n]",
         "shown = finished and self._params.is_ranked, seqs", "samples that are not told are told"),
    ),
    *plant(
        "jax_engine/engine/prompts.py",
        ("tests/engine/test_prompts.py",),
        ("add_special_tokens=False)[:most] if most", "add_special_tokens=False) if most",
         "a prediction of any length is followed"),
    ),
    *plant(
        "jax_engine/serving/engine_server.py",
        ("tests/serving/test_predictions.py", "-k=without_guesses"),
        ('"prediction": add.prediction,', '"prediction": None,', "a prediction is lost on its way"),
    ),
]  # fmt: skip

REPORTS: list[Mutant] = [
    *plant(
        "jax_engine/speculation/custom_class.py",
        ("tests/speculation/test_reports.py", "-k=no_kind_of_guess"),
        ("[[int(token) for token in", "[[token for token in", "a guess may be of any type"),
    ),
    *plant(
        "jax_engine/guided/guide.py",
        ("tests/speculation/test_reports.py", "-k=no_kind_of_guess"),
        ("    ahead = matcher.deep_copy()\n", "    ahead = matcher\n",
         "a grammar is not rolled back"),
    ),
    *plant(
        "jax_engine/engine/step_outputs.py",
        ("tests/speculation/test_reports.py", "-k=without_a_token_left"),
        ("        tokens[seq_id] = tokens[seq_id][: verified[seq_id]]\n", "        pass\n",
         "what is drawn where nothing is allowed counts"),
    ),
]  # fmt: skip

MUTANTS = [*CONTROLLER, *ENGINE, *PREDICTIONS, *REPORTS]
