"""Bugs in drafts: who gets some, what of them counts, and what they leave behind."""

from tests.mutation.planting import Mutant, plant

PAIRS = ("tests/engine/test_speculation_pairs.py", "-k=an_option")
SCHEDULERS = ("tests/core/test_drafts.py",)
BLOCKS = ("tests/properties/test_block_manager_pair.py",)
SPECULATOR = ("tests/speculation/test_speculator.py",)
COSTS = ("tests/speculation/test_step_costs.py",)
DRAFT = ("tests/speculation/test_draft_model.py",)
UNREAD = ("tests/worker/test_unread.py",)
STALE = ("tests/properties/test_draft_model.py", "-k=stale")
OTHER_VOCABULARY = ("tests/speculation/test_other_vocabulary.py",)

CONTROLLER: list[Mutant] = [
    *plant("jax_engine/core/decoding.py", SCHEDULERS,
        ("token_ids, known, known + count", "token_ids, known - 1, known + count",
         "drafts copy a block that a request of the same step found"),
    ),
    *plant("jax_engine/core/blocks.py", BLOCKS,
        ("        removed = self.ids[num_blocks:]\n        del self.ids[num_blocks:]\n",
         "        removed = self.ids[num_blocks + 1 :]\n        del self.ids[num_blocks + 1 :]\n",
         "a block too many is kept"),
    ),
]  # fmt: skip

ENGINE: list[Mutant] = [
    *plant("jax_engine/engine/requests/masks.py", PAIRS,
        ("[*self.item.seq.output_token_ids, *self.drafts]", "self.item.seq.output_token_ids",
         "bad words do not see drafts"),
        ("(behind(matcher, part.drafts), part)", "(matcher, part)", "grammars do not see drafts"),
    ),
    *plant("jax_engine/engine/pipeline.py", PAIRS,
        ("    while sampled:\n", "    if sampled:\n", "accepted tokens are not looked at"),
    ),
    *plant("jax_engine/core/scheduler_output.py", PAIRS,
        ("range(token - len(drafts), token + 1)", "[token] * num_tokens",
         "all draws are behind the last draft"),
        ("[*seq.token_ids, *drafts] if", "[*seq.token_ids] if", "penalties do not see drafts"),
    ),
    *plant("jax_engine/speculation/draft_length.py", COSTS,
        ("        else:\n            self._times.append(seconds)\n",
         "        self._times.append(seconds)\n", "a step that was compiled counts"),
        ("> STALE", "> 10**9", "an accident is remembered for ever"),
        ("while plain and size:", "while plain is not None and size:",
         "a coarse clock ends the engine"),
    ),
    *plant("jax_engine/speculation/speculator.py", SPECULATOR,
        ("key=lambda one: -one[0]", "key=lambda one: one[0]", "the least likely guesses are kept"),
    ),
    *plant("jax_engine/speculation/lookup_drafters.py", ("tests/speculation/test_ngram.py",),
        ("self._min - 1, self._min - 1) is not None", "self._min, self._min) is not None",
         "a match that the next token completes is not seen"),
    ),
]  # fmt: skip

DRAFT_MODEL: list[Mutant] = [
    *plant("jax_engine/worker/step_plan.py", UNREAD,
        ("jnp.cumprod(right, axis=1)", "right", "guesses behind a wrong one are right"),
        ("None if row.history is None else renamed(row.history)", "row.history",
         "penalties see other guesses"),
        ('[(fields["position_of_sample"].start + samples, follows[row_of_sample])]', "[]",
          "the number of a draw is that of another position"),
        ("follows[row_of_sample])]", "row_of_sample)]", "rows move by the guesses of others"),
    ),
    *plant("jax_engine/worker/worker.py", UNREAD,
        ("drawn = [_sampled(ticket).token_ids for ticket in unread.drawn]",
         "drawn = [self._last_tokens for _ in unread.drawn]",
         "a step is fed the tokens of another one"),
    ),
    *plant("jax_engine/speculation/draft_runner.py", DRAFT,
        ("rows, drew, going, count)\n                unread",
         "rows, drew, going, count - 1)\n                unread",
         "guesses lie one position too early"),
    ),
    *plant("jax_engine/speculation/speculator.py", DRAFT,
        ("found.get(item.seq.seq_id, [UNKNOWN] * count)",
         "found.get(item.seq.seq_id, [0] * count)",
         "guesses that cannot be read are taken to be some token"),
    ),
    *plant("jax_engine/speculation/draft_model.py", DRAFT,
        ("most = min(one.most, held.room, self._max_len + 1 - len(one.token_ids))",
         "most = min(one.most, held.room)", "a draft model reads more than it can"),
    ),
    *plant("jax_engine/speculation/draft_cache.py", DRAFT,
        ("min(valid, len(hashes) - 1)", "min(valid, len(hashes))", "nothing is left to draw from"),
        ("beyond(guesses[:-1])", "beyond(guesses)", "the last guess counts as computed"),
        ("valid = len(right) if right.all() else int(right.argmin())", "valid = int(right.sum())",
         "slots behind a wrong one count as right"),
    ),
    *plant("jax_engine/speculation/other_vocabulary.py", OTHER_VOCABULARY,
        ("self.hashes.cut(self.text.upto(token_ids))", "self.text.upto(token_ids)",
         "words that went on have their old hashes"),
        ("self.token_ids[kept + same :] = after[same:]", "self.token_ids[kept + same :] = after",
         "a word is said twice"),
        ("others = [seq_id for seq_id in self._known if seq_id not in asked]",
         "others = list(self._known)", "those that are asked for lose their blocks"),
        ("            self._pool.free_all(self._known.pop(seq_id).blocks)\n",
         "            self._known.pop(seq_id)\n", "blocks of ended sequences are lost"),
        ("return token_ids[: next(end, None)]", "return token_ids",
         "guesses go on behind the end of the draft's text"),
    ),
    *plant("jax_engine/speculation/draft_runner.py", DRAFT,
        ("[-(sample[i] + 1)]", "[-(i + 1)]", "a row goes on with another row's guess"),
        ("[number for number in closed if number not in setups]", "closed",
         "a request that comes again is forgotten at once"),
    ),
    *plant("jax_engine/speculation/speculator.py", DRAFT,
        ("for seq_id, guesses in given.items() if guesses is None}", "for seq_id in ()}",
         "who waits for the draft model rests"),
        ("room = group.stop.max_len - len(seq.token_ids) - 1", "room = one_more = 10**6",
         "guesses are drawn behind the end"),
    ),
]  # fmt: skip

PREDICTIONS: list[Mutant] = [
    *plant("jax_engine/speculation/predicted_text.py", ("tests/speculation/test_prediction.py",),
        ("ends[ends >= at]", "ends[ends >= 0]", "an answer goes back to the first place"),
        ("if length >= SHORTEST:", "if length >= 1:", "one token is enough to be back"),
        ("            place.num_accepted += 1\n", "        place.num_accepted += 1\n",
         "of right guesses one counts"),
        ("range(place.at - length, place.at)", "range(place.at - 1, place.at)",
         "tokens that led back were not said"),
        ("get(seq.index)\n        if place is None:", "get(0)\n        if place is None:",
         "samples share a place"),
    ),
    *plant("jax_engine/engine/results.py", ("tests/engine/test_predictions.py",),
        ("shown = finished and self._params.is_ranked, seqs[: self._params.n]",
         "shown = finished and self._params.is_ranked, seqs", "samples that are not told are told"),
    ),
    *plant("jax_engine/engine/requests/prompts.py", ("tests/engine/test_prompts.py",),
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
        "jax_engine/speculation/drafter.py",
        ("tests/speculation/test_reports.py", "-k=no_kind_of_guess"),
        ("[[int(token) for token in", "[[token for token in", "a guess may be of any type"),
    ),
    *plant(
        "jax_engine/guided/guide.py",
        ("tests/speculation/test_reports.py", "-k=no_kind_of_guess"),
        ("    ahead = matcher.deep_copy()\n", "    ahead = matcher\n",
         "a grammar is not rolled back"),
    ),
]  # fmt: skip

MUTANTS = [*CONTROLLER, *ENGINE, *DRAFT_MODEL, *PREDICTIONS, *REPORTS]
