"""Bugs in the worker: packed plans, shapes, seeds, swapped blocks, memory, measured costs."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/worker"
PLAN = ("tests/worker/test_step_plan.py",)
SHAPES = ("tests/worker/test_step_shape.py",)
HOST_BLOCKS = ("tests/worker/test_host_blocks.py",)
FEW_ROWS = ("tests/worker/test_few_rows.py",)
COSTS = ("tests/engine/test_preemption_costs.py",)
PROMPTS = ("tests/engine/test_logprobs.py", "-k prompts")
SHELL = ("tests/properties/test_engine_shell.py",)
MASKS = ("tests/engine/test_step_masks.py", "tests/engine/test_constraints.py")

PLANS: list[Mutant] = plant(
    f"{FOLDER}/step_plan.py",
    PLAN,
    (
        "query_start_loc[1 : count + 1] =",
        "query_start_loc[:count] =",
        "a sequence begins where it ends",
    ),
    (
        "query_start_loc[count + 1 :] = total",
        "query_start_loc[count + 1 :] = 0",
        "padding rows begin at 0",
    ),
    (
        "[len(setup.prompt_token_ids) for setup in of_rows]",
        "[len(row.tokens) for row in rows]",
        "a prompt ends where its chunk does",
    ),
    (
        "[:count] = ends",
        "[:count] = num_tokens",
        "a chunk's context is the chunk alone",
    ),
    (
        'logits_index=fields["token_of_sample"]',
        'logits_index=jnp.maximum(fields["token_of_sample"] - 1, 0)',
        "logits of the last token but one",
    ),
    ("jnp.maximum(-1 - tokens, 0)", "jnp.maximum(-tokens, 0)", "a pending token is another row's"),
    (
        "history.at[1].set(_fill_pending(history[1], previous))",
        "history.at[1].set(history[1])",
        "penalties do not see the pending token",
    ),
    ('"targets"][:] = -1', '"targets"][:] = 0', "padding asks about token 0"),
    (
        "prompt_token_ids[row.start + 1 : row.end + 1]",
        "prompt_token_ids[row.start : row.end]",
        "each token is its own target",
    ),
    (
        "setup.rows[index : index + 1]",
        "setup.rows[:1]",
        "all samples of a prompt draw alike",
    ),
    ("entries.shape[1] :] = padding_row", "entries.shape[1] :] = 0", "padding edits row 0"),
    ("tables[seq, position // block_size]", "tables[seq, 0]", "all slots in the first block"),
    ("+ token_of_sample + 1", "+ token_of_sample", "drawn as before"),
    ("(ends - borders)[row_of_sample] + token_of_sample + 1", "ends[row_of_sample]", "along a row"),
)

SMALL_PARTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/step_shape.py",
        SHAPES,
        ("if bucket >= size:", "if bucket > size:", "a full bucket is not enough"),
        (" if tokens <= MANY_ROWS else MANY_ROWS", "", "more rows than are listed"),
        ("MANY_ROWS + 1)", "MANY_ROWS)", "the bucket of many rows has too few"),
        ("max(num_tokens, 2 * rows)", "num_tokens", "many rows do not make room for their tokens"),
        (
            "MIN_BIAS * factor < num_bias or MIN_HISTORY * factor < num_history",
            "MIN_BIAS * factor < num_bias and MIN_HISTORY * factor < num_history",
            "room for one kind of edit may be too small",
        ),
    ),
    *plant(
        "jax_engine/engine/running_requests.py",
        PLAN,
        ("seed + sample * 0x", "seed + (sample - 1) * 0x", "seeds of samples are shifted by one"),
        (">> 31)) >> 1", ">> 31))", "a derived seed may be larger than a seed can be"),
    ),
    *plant(
        f"{FOLDER}/step_plan.py",
        PLAN,
        ("known[row][:, :position]", "known[row]", "along a row, penalties know what comes later"),
        ("num_output < setup", "num_output <= setup", "min_tokens + 1"),
        (
            "max(position - prompt_len, 0)",
            "position - prompt_len",
            "inside of a prompt, nothing may end",
        ),
        (">= prompt_len)", "> prompt_len)", "the first token is of the prompt"),
    ),
    *plant(
        "jax_engine/core/scheduler_output.py",
        ("tests/core/test_make_step.py", *SHELL),
        (
            "[*seq.token_ids, pending] if pending else list(seq.token_ids)",
            "list(seq.token_ids)",
            "penalties forget the token being sampled",
        ),
        ("indices.append(seq.index)", "indices.append(0)", "all samples draw alike"),
        ("tokens = [pending or seq", "tokens = [seq", "a pending token is read from the past"),
        (
            "block_table_rows([item.seq.seq_id for item in plan.scheduled])",
            "block_table_rows([item.seq.seq_id for item in plan.scheduled[::-1]])",
            "block tables are another row's",
        ),
    ),
    *plant(
        "jax_engine/engine/running_requests.py",
        ("tests/engine/test_request_setup.py",),
        ("[engine_seed, number]", "[engine_seed]", "all requests without a seed draw alike"),
    ),
    *plant(
        f"{FOLDER}/kv_cache.py",
        HOST_BLOCKS,
        ("index = block // self._per_piece", "index = 0", "all blocks are in one piece"),
        ("self._pieces[index] = piece", "pass", "a piece is forgotten"),
        ("                self._says_full = False\n", "", "the warning comes each time"),
        ("            return False\n", "            return True\n", "no memory is no obstacle"),
    ),
    *plant(
        f"{FOLDER}/step_output.py",
        FEW_ROWS,
        ("num_samples <= FEW_ROWS, few", "num_samples > 0, few", "all but the first rows are lost"),
        ("shape.num_rows <= FEW_ROWS", "False", "a shape without many rows has two forms"),
    ),
    *plant(
        f"{FOLDER}/kv_cache.py",
        COSTS,
        ("data[: len(part)] = self.host.read", "self.host.read", "zeros are swapped in"),
        (
            "self.host.write(cpu[: len(part)]",
            "self.host.write(gpu[: len(part)]",
            "written elsewhere",
        ),
        (
            "columns[:, : len(pairs)]",
            "columns[::-1, : len(pairs)]",
            "sources and destinations swap",
        ),
    ),
    *plant(
        f"{FOLDER}/preemption_costs.py",
        COSTS,
        ("    kv_cache.host.write(blocks, held)\n", "", "what was on the host is overwritten"),
        ("    kv_cache.write(0, held)\n", "", "block 0 is overwritten"),
        ("closed=[_OWN])", "closed=[])", "the measured request stays"),
    ),
    *plant(
        "jax_engine/core/scheduler_state.py",
        ("tests/core/test_preemption.py",),
        ("if self.costs is None:", "if True:", "costs are measured each time"),
    ),
    *plant(
        f"{FOLDER}/step_output.py",
        PROMPTS,
        ("jnp.any(wanted >= 0)", "jnp.all(wanted >= 0)", "a chunk with a pause is left out"),
        ("jnp.maximum(wanted, 0)", "jnp.maximum(wanted - 1, 0)", "of the token before"),
    ),
    *plant(
        "jax_engine/engine/masks.py",
        MASKS,
        ("row &= constraints.allowed", "row |= constraints.allowed", "nothing is forbidden"),
        ("token // 32] &= ~(", "token // 32] |= (", "bad words are allowed"),
        (
            "mask[part.samples] = row",
            "mask[part.samples.start] = row",
            "only the first sample is bound",
        ),
        ("edited[part.samples] = row", "edited[first] = row", "only the first sample is edited"),
    ),
    *plant(
        f"{FOLDER}/step_output.py",
        ("tests/worker/test_hidden_states.py",),
        ("query_start_loc[1:] - 1, 0)", "query_start_loc[:-1], 0)", "the first token's state"),
    ),
]

MUTANTS = PLANS + SMALL_PARTS
