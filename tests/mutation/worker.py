"""Bugs in the worker: packed plans, shapes, seeds, swapped blocks, memory, measured costs."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/worker"
PLAN = ("tests/worker/test_step_plan.py",)
SHAPES = ("tests/worker/test_step_shape.py",)
FEW_ROWS = ("tests/worker/test_few_rows.py",)
COSTS = ("tests/engine/test_preemption_costs.py",)
PROMPTS = ("tests/engine/test_logprobs.py", "-k prompts")
SHELL = ("tests/properties/test_engine_shell.py",)
MASKS = ("tests/engine/test_step_masks.py", "tests/engine/test_constraints.py")

PLANS: list[Mutant] = plant(f"{FOLDER}/step_plan.py", PLAN,
    ("query_start_loc[1 : count + 1] =", "query_start_loc[:count] =",
     "a sequence begins where it ends"),
    ("query_start_loc[count + 1 :] = total", "query_start_loc[count + 1 :] = 0",
     "padding rows begin at 0"),
    ("[len(setup.prompt_token_ids) for setup in of_rows]", "[len(row.tokens) for row in rows]",
     "a prompt ends where its chunk does"),
    ("[:count] = ends", "[:count] = num_tokens", "a chunk's context is the chunk alone"),
    ('logits_index=fields["token_of_sample"]',
     'logits_index=jnp.maximum(fields["token_of_sample"] - 1, 0)',
     "logits of the last token but one"),
    ("jnp.maximum(-1 - tokens, 0)", "jnp.maximum(-tokens, 0)", "a pending token is another row's"),
    ("history.at[1].set(_fill_pending(history[1], previous))", "history.at[1].set(history[1])",
     "penalties do not see the pending token"),
    ('"targets"][:] = -1', '"targets"][:] = 0', "padding asks about token 0"),
    ("prompt_token_ids[row.start + 1 : row.end + 1]", "prompt_token_ids[row.start : row.end]",
     "each token is its own target"),
    ("setup.rows[index : index + 1]", "setup.rows[:1]", "all samples of a prompt draw alike"),
    ("entries.shape[1] :] = padding_row", "entries.shape[1] :] = 0", "padding edits row 0"),
    ("(ends - borders)[row_of_sample] + token_of_sample + 1", "ends[row_of_sample]", "along a row"),
)  # fmt: skip

SMALL_PARTS: list[Mutant] = [
    *plant(f"{FOLDER}/step_shape.py", SHAPES,
        ("MANY_ROWS + 1)", "MANY_ROWS)", "the bucket of many rows has too few"),
    ),
    *plant("jax_engine/engine/running_requests.py", PLAN,
        ("seed + sample * 0x", "seed + (sample - 1) * 0x", "seeds of samples are shifted by one"),
    ),
    *plant(f"{FOLDER}/step_plan.py", PLAN,
        ("known[row][:, first:position]", "known[row][:, first:]",
         "along a row, penalties know what comes later"),
    ),
    *plant(f"{FOLDER}/step_plan.py", ("tests/engine/test_prompt_embeds.py",),
        ("embeds[row.start : row.end]", "embeds[: len(row.tokens)]",
         "each chunk of a prompt reads its first embeddings"),
    ),
    *plant("jax_engine/core/prefix_cache.py", ("tests/core/test_embeds_salt.py",),
        ("self._embeds[start:end]", "self._embeds[:0]", "prompts of any embeddings share blocks"),
    ),
    *plant("jax_engine/core/scheduler_output.py", ("tests/core/test_make_step.py", *SHELL),
        ("indices.append(seq.index)", "indices.append(0)", "all samples draw alike"),
        ("block_table_rows([item.seq.seq_id for item in plan.scheduled])",
         "block_table_rows([item.seq.seq_id for item in plan.scheduled[::-1]])",
         "block tables are another row's"),
    ),
    *plant("jax_engine/engine/running_requests.py", ("tests/engine/test_request_setup.py",),
        ("[engine_seed, number]", "[engine_seed]", "all requests without a seed draw alike"),
    ),
    *plant(f"{FOLDER}/step_output.py", FEW_ROWS,
        ("num_samples <= FEW_ROWS, few", "num_samples > 0, few", "all but the first rows are lost"),
    ),
    *plant(f"{FOLDER}/kv_cache.py", COSTS,
        ("data[: len(part)] = self.host.read", "self.host.read", "zeros are swapped in"),
        ("self.host.write(cpu[: len(part)]", "self.host.write(gpu[: len(part)]",
         "written elsewhere"),
        ("columns[:, : len(pairs)]", "columns[::-1, : len(pairs)]",
         "sources and destinations swap"),
    ),
    *plant(f"{FOLDER}/preemption_costs.py", COSTS,
        ("closed=[_OWN])", "closed=[])", "the measured request stays"),
    ),
    *plant(f"{FOLDER}/step_output.py", PROMPTS,
        ("jnp.maximum(wanted, 0)", "jnp.maximum(wanted - 1, 0)", "of the token before"),
    ),
    *plant("jax_engine/engine/requests/masks.py", MASKS,
        ("&= ~_bit(token)", "|= _bit(token)", "bad words are allowed"),
        ("mask[part.samples] = row", "mask[part.samples.start] = row",
         "only the first sample is bound"),
        ("edited[part.samples] = row", "edited[first] = row", "only the first sample is edited"),
    ),
    *plant(f"{FOLDER}/step_output.py", ("tests/worker/test_hidden_states.py",),
        ("query_start_loc[1:] - 1, 0)", "query_start_loc[:-1], 0)", "the first token's state"),
    ),
]  # fmt: skip

MUTANTS = PLANS + SMALL_PARTS
