"""Bugs in drafts: who gets some, what of them counts, and what they leave behind."""

from tests.mutation.planting import Mutant, plant

PAIRS = ("tests/engine/test_speculation_pairs.py", "-k=an_option")
SCHEDULERS = ("tests/core/test_drafts.py",)
BLOCKS = ("tests/properties/test_block_manager_pair.py",)
PLAN = ("tests/worker/test_step_plan.py", "-k=guesses")
SPECULATOR = ("tests/speculation/test_speculator.py",)
COSTS = ("tests/speculation/test_step_costs.py",)
DRAFT = ("tests/speculation/test_draft_model.py",)
UNREAD = ("tests/worker/test_unread.py",)
STALE = ("tests/properties/test_draft_model.py", "-k=stale")
HASHES = ("tests/speculation/test_prefix_hashes.py",)
OTHER_VOCABULARY = ("tests/speculation/test_other_vocabulary.py",)

CONTROLLER: list[Mutant] = [
    *plant(
        "jax_engine/core/decoding.py",
        SCHEDULERS,
        ("    if out.preempted:\n        return\n", "", "drafts beside a preemption"),
        ("max_draft_tokens // len(places)", "max_draft_tokens", "the first row takes all drafts"),
        ("stop.max_len - length - 1", "stop.max_len - length", "a draft is the last token"),
        ("manager.num_free_gpu_blocks - manager.watermark_blocks", "manager.num_free_gpu_blocks",
         "drafts take the watermark"),
        ("token_ids, known, known + count", "token_ids, known - 1, known + count",
         "drafts copy a block that a request of the same step found"),
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
        ("max(len(out.scheduled), num_samples)", "num_samples",
         "drafts beside chunks take more rows than there are"),
    ),
    *plant(
        "jax_engine/core/blocks.py",
        BLOCKS,
        ("                self._free.move_to_end(block, last=self._newest_first)\n",
         "                pass\n", "wrong drafts push cached blocks out"),
    ),
    *plant(
        "jax_engine/core/blocks.py",
        BLOCKS,
        ("        removed = self.ids[num_blocks:]\n        del self.ids[num_blocks:]\n",
         "        removed = self.ids[num_blocks + 1 :]\n        del self.ids[num_blocks + 1 :]\n",
         "a block too many is kept"),
    ),
]  # fmt: skip

ENGINE: list[Mutant] = [
    *plant(
        "jax_engine/engine/build_speculator.py",
        ("tests/engine/test_warmup.py", "-k=for_guesses"),
        ("rows + min(MAX_DRAFT_TOKENS, rows * each)", "rows", "a warm-up forgets guesses"),
        ("min(rows + min(MAX_DRAFT_TOKENS, rows * each), max_samples)",
         "rows + min(MAX_DRAFT_TOKENS, rows * each)", "a warm-up compiles rows that no step has"),
    ),
    *plant(
        "jax_engine/engine/masks.py",
        PAIRS,
        ("[*self.item.seq.output_token_ids, *self.drafts]", "self.item.seq.output_token_ids",
         "bad words do not see drafts"),
        ("found.append(ConstrainedSamples(item, its, place, item.drafts[:i]))", "pass",
         "draws behind drafts may be anything"),
        ("(behind(matcher, part.drafts), part)", "(matcher, part)", "grammars do not see drafts"),
    ),
    *plant(
        "jax_engine/engine/pipeline.py",
        PAIRS,
        ("rows[item.seq.seq_id] + 1)", "rows[item.seq.seq_id])",
         "all tokens have the first one's numbers"),
        ("    while sampled:\n", "    if sampled:\n", "accepted tokens are not looked at"),
    ),
    *plant(
        "jax_engine/core/scheduler_output.py",
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
        ("len(step.rows) + num_draft", "len(rows)",
         "a step with guesses is compiled as a mixed one"),
    ),
    *plant(
        "jax_engine/speculation/draft_length.py",
        COSTS,
        ("        else:\n            self._times.append(seconds)\n",
         "        self._times.append(seconds)\n", "a step that was compiled counts"),
        ("return min(self._times)", "return max(self._times)", "an accident makes guesses dear"),
        ("> STALE", "> 10**9", "an accident is remembered for ever"),
        ("while plain and size:", "while plain is not None and size:",
         "a coarse clock ends the engine"),
        ("min(found, likely)", "found", "a step that was not seen costs anything"),
        ("            self._saved -= max(0.0, loss)\n", "            pass\n",
         "trials cost what they like"),
        ("max(1, padded(rows + 1) - rows)", "1", "a trial leaves rows empty"),
        (" + self._draft_cost * -(-num_drafts // rows)", "",
         "a draft model's guesses cost nothing before they are tried"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        SPECULATOR,
        ("        self._asked -= dropped  # they were not tried\n", "",
         "who was not tried rests"),
        ("key=lambda one: -one[0]", "key=lambda one: one[0]", "the least likely guesses are kept"),
        ("spends=False) > 0", "spends=False) >= 0", "each step waits for guesses"),
        ("if not (self._adaptive and self._draft_cost):", "if True:",
         "a draft model draws guesses that are dropped"),
        ("        if self._draft_cost:  # those that are drawn are paid already\n",
         "        if False:\n", "guesses that are paid are dropped"),
    ),
    *plant(
        "jax_engine/speculation/lookup_drafters.py",
        ("tests/speculation/test_ngram.py",),
        ("self._min - 1, self._min - 1) is not None", "self._min, self._min) is not None",
         "a match that the next token completes is not seen"),
    ),
    *plant(
        "jax_engine/speculation/lookup_drafters.py",
        ("tests/speculation/test_suffix.py",),
        ("if self._corpus is None or not one.shares or n", "if self._corpus is None or n",
         "how fast an answer comes tells of others"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        SPECULATOR,
        ("if not 0 <= token < self._vocab_size:", "if not 0 <= token:", "a guess is no token"),
        ("            self._drafter.forget(ended)\n", "", "drafters remember all that ended"),
    ),
]  # fmt: skip

DRAFT_MODEL: list[Mutant] = [
    *plant(
        "jax_engine/worker/step_plan.py",
        UNREAD,
        ("jnp.cumprod(right, axis=1)", "right", "guesses behind a wrong one are right"),
        ("(i < count)", "True", "guesses of other rows count"),
        ("known = [end - 1 - count for", "known = [end - count for",
         "a guess is held to the draw behind it"),
        ("    fed = jnp.where(fed < 0, previous[jnp.maximum(-1 - fed, 0)], fed)\n", "",
         "guesses that the host does not know are wrong"),
        ("step, samples - (ends - counts)[step]", "step, samples",
         "tokens of later steps are others"),
        ("None if row.history is None else renamed(row.history)", "row.history",
         "penalties see other guesses"),
        ("jnp.where(tokens < vocab_size, tokens, 0)", "tokens",
         "a model is fed tokens that it does not know"),
        ('[(fields["position_of_sample"].start + samples, follows[row_of_sample])]', "[]",
          "the number of a draw is that of another position"),
        ("follows[row_of_sample])]", "row_of_sample)]", "rows move by the guesses of others"),
    ),
    *plant(
        "jax_engine/worker/worker.py",
        UNREAD,
        ("drawn = [_sampled(ticket).token_ids for ticket in unread.drawn]",
         "drawn = [self._last_tokens for _ in unread.drawn]",
         "a step is fed the tokens of another one"),
    ),
    *plant(
        "jax_engine/speculation/draft_cache.py",
        DRAFT,
        ("any(self._lacks(want) > 1 for want, _ in pairs)", "False",
         "it goes on behind tokens that it lacks"),
    ),
    *plant(
        "jax_engine/speculation/draft_cache.py",
        STALE,
        ("            self._note(want.blocks, start, np.zeros(end - start, np.uint64))\n", "",
         "slots say what was there before the guesses"),
    ),
    *plant(
        "jax_engine/speculation/draft_model.py",
        DRAFT,
        ("- count - 1\n", "- 1\n", "guesses go on beyond the end"),
    ),
    *plant(
        "jax_engine/speculation/draft_runner.py",
        DRAFT,
        ("rows, drew, going, count)\n                unread",
         "rows, drew, going, count - 1)\n                unread",
         "guesses lie one position too early"),
        ("tokens.append(begin + 1)", "tokens.append(begin)",
         "it goes on behind the last known token"),
        ("rows[i].end + behind,", "rows[i].end + behind + 1,",
         "a guess is fed a position too late"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        DRAFT,
        ("found.get(item.seq.seq_id, [UNKNOWN] * count)", "found.get(item.seq.seq_id, [0] * count)",
         "guesses that cannot be read are taken to be some token"),
    ),
    *plant(
        "jax_engine/speculation/draft_model.py",
        DRAFT,
        ("if most > 0 and held.own_end:", "if most > 0:",
         "sequences write different tokens into a block that they share"),
        ("most = min(one.most, held.room, self._max_len + 1 - len(one.token_ids))",
         "most = min(one.most, held.room)", "a draft model reads more than it can"),
        ("        self._runner.close(ended - set(self._numbers.values()))\n", "",
         "the draft's runner remembers all requests"),
    ),
    *plant(
        "jax_engine/speculation/draft_cache.py",
        DRAFT,
        ("            self._slots[:] = 0\n", "", "slots are right after a failure"),
        ("min(valid, len(hashes) - 1)", "min(valid, len(hashes))", "nothing is left to draw from"),
        ("beyond(guesses[:-1])", "beyond(guesses)", "the last guess counts as computed"),
        ("valid = len(right) if right.all() else int(right.argmin())", "valid = int(right.sum())",
         "slots behind a wrong one count as right"),
        ("            self._note(want.blocks, start, want.text.known[start : start + count])\n", "",
         "the draft's prompts are computed again and again"),
        ("most = want.most if count == lacks else 0", "most = want.most",
         "guesses follow the middle of a prompt"),
        ("count = min(lacks, budget)", "count = lacks", "a long prompt stalls a step"),
    ),
    *plant(
        "jax_engine/speculation/other_vocabulary.py",
        OTHER_VOCABULARY,
        ("self.hashes.cut(self.text.upto(token_ids))", "self.text.upto(token_ids)",
         "words that went on have their old hashes"),
        ("self.token_ids[kept + same :] = after[same:]", "self.token_ids[kept + same :] = after",
         "a word is said twice"),
        ("        self.rest = data[whole:]\n", "", "half a character is lost"),
        ("if ends[-1] == len(text) and start in ends:", "if start in ends:",
         "guesses are the text of other bytes"),
        ("others = [seq_id for seq_id in self._known if seq_id not in asked]",
         "others = list(self._known)", "those that are asked for lose their blocks"),
        ("            self._pool.free_all(self._known.pop(seq_id).blocks)\n",
         "            self._known.pop(seq_id)\n", "blocks of ended sequences are lost"),
        ("return token_ids[: next(end, None)]", "return token_ids",
         "guesses go on behind the end of the draft's text"),
    ),
    *plant(
        "jax_engine/speculation/draft_cache.py",
        HASHES,
        ("self.known[-1] if start else self._before", "self._before",
         "a prefix has the hash of its end"),
        ("hash(salt) % 2**64", "0", "salts do not count"),
    ),
    *plant(
        "jax_engine/speculation/draft_runner.py",
        DRAFT,
        ("[-(sample[i] + 1)]", "[-(i + 1)]", "a row goes on with another row's guess"),
        ("[number for number in closed if number not in setups]", "closed",
         "a request that comes again is forgotten at once"),
        ('        rows[:, places["temperature"]] = 0', "        pass", "greedy guesses are drawn"),
        ("num_draft=len(row.token_ids) - 1 if decodes else 0", "num_draft=0",
         "two tokens of an output take a step for prompts"),
    ),
    *plant(
        "jax_engine/speculation/speculator.py",
        DRAFT,
        ("for seq_id, guesses in given.items() if guesses is None}", "for seq_id in ()}",
         "who waits for the draft model rests"),
        ("room = group.stop.max_len - len(seq.token_ids) - 1", "room = one_more = 10**6",
         "guesses are drawn behind the end"),
        ("self._setups.pop(number, None)", "pass", "requests are never forgotten"),
    ),
]  # fmt: skip

PREDICTIONS: list[Mutant] = [
    *plant(
        "jax_engine/speculation/predicted_text.py",
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
        (" if seq.seq_id not in predicted]", "]", "a drafter is asked beside a prediction"),
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
    *plant(
        "jax_engine/engine/pipeline.py",
        ("tests/speculation/test_reports.py", "-k=without_a_token_left"),
        ("        tokens[seq_id] = tokens[seq_id][: verified[seq_id]]\n", "        pass\n",
         "what is drawn where nothing is allowed counts"),
    ),
]  # fmt: skip

MUTANTS = [*CONTROLLER, *ENGINE, *DRAFT_MODEL, *PREDICTIONS, *REPORTS]
