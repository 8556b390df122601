"""Bugs in adapters of experts, of routers and of the heads of latent attention."""

from tests.mutation.planting import Mutant, plant

FILES = ("tests/lora/test_experts.py",)
MERGED = ("tests/worker/test_adapters.py", "-k=merged_model and (qwen2_moe or deepseek_v2)")
TURNED = ("tests/worker/test_adapters.py", "-k=merged_model and gpt_oss")
TAKEN = ("tests/worker/test_expert_adapters.py", "-k=is_taken and qwen2_moe")
TWIN = ("tests/worker/test_expert_adapters.py", "-k=twin and deepseek_v2 and False")
BIASES = ("tests/worker/test_expert_adapters.py", "-k=bias_of_keys")

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/lora/peft.py",
        FILES,
        ("(-1, rank, count)), (2, 0, 1)", "(-1, count, rank)), (1, 0, 2)",
         "B has all ranks of an expert side by side"),
        ("targets[len(targets) - 1 - inside]", "targets[inside]",
         "the inner adapter is taken for the outer one"),
        ("TURNED_UP_TO = (0, 18)", "TURNED_UP_TO = (0, 19)",
         "0.19 is taken for a version that turns parameters"),
        ("found != plain or (plain == turned and _turns(fields))", "found != plain",
         "square parameters are never turned"),
        ("(a.shape, b.shape), not modules.experts_turned", "(a.shape, b.shape), True",
         "gpt-oss's parameters are turned once more"),
        ("            start = rows.stop\n", "", "up gets the rows of gate"),
        ("            if name in kept:\n", "            if False:\n",
         "an expert's own tensors are overwritten"),
        ("modules.fused[parameter]", "modules.fused[next(iter(modules.fused))]",
         "all parameters go to the first layer's experts"),
    ),
    *plant(
        "jax_engine/lora/peft.py",
        FILES,
        ("    check_targets(fields, modules)\n", "", "parameters that there are not"),
        ("        return parameters[name]\n", "        return name\n",
         "ranks of a parameter are looked up by the experts' names"),
        ('        if is_target(fields, f"{one}.weight"):\n', "        if False:\n",
         "a router's weight is no target"),
        ('may_lack = module.kind in ("experts", "router")', "may_lack = False",
         "each expert must have tensors"),
    ),
    *plant(
        "jax_engine/lora/modules.py",
        FILES,
        ("            container = container.replace(old, new)\n", "            pass\n",
         "Mixtral's experts have the checkpoint's name alone"),
        ("        if name in self._older:\n", "        if False:\n",
         "routers are not found by transformers' names"),
    ),
    *plant(
        "jax_engine/lora/gguf_adapter.py",
        ("tests/lora/test_gguf.py",),
        ("        if stem.endswith(EXPERTS):\n", "        if False:\n",
         "a GGUF file's experts are those of another model"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        MERGED,
        ("made[A][expert, first : first + one.rank]", "made[A][0, first : first + one.rank]",
         "all experts' A's go to the first"),
        ("made[A][:, : one.rank], made[B][...] = one.a, scaled",
         "made[A][:1, : one.rank], made[B][...] = one.a, scaled",
         "the first head alone has values"),
        ("made[B][..., : one.rank] = one.a.T", "made[B][:1, :, : one.rank] = one.a.T",
         "the first head alone has keys"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        BIASES,
        ("made[RANKS][:, 0] = one.rank, one.bias is not None",
         "made[RANKS][:, 0] = one.rank, False", "values have no biases"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        TURNED,
        ("made_of.read_into(_Rows(values, is_turned(made_of)), made[B], words)\n\n\ndef _of_layer",
         "made_of.read_into(_Rows(values), made[B], words)\n\n\ndef _of_layer",
         "B is not turned with gpt-oss's experts"),
    ),
    *plant(
        "jax_engine/weights/low_rank.py",
        MERGED,
        ("(slot - 1) * layout.choices + choice + 1", "(slot - 1) * layout.choices + 1",
         "all rows have the first expert's adapter"),
    ),
    *plant(
        "jax_engine/lora/slot_weights.py",
        TAKEN,
        ("(0, slot * layout.choices)", "(0, slot)", "an adapter's experts go to its neighbour"),
    ),
    *plant(
        "jax_engine/layers/experts.py",
        MERGED,
        ("each = low.added_to(each)", "pass", "down has no adapters"),
        ("place[:, None] >= pairs.starts[1:]", "place[:, None] >= pairs.starts[:-1]",
         "rows have the next expert's adapter"),
    ),
    *plant(
        "jax_engine/layers/experts.py",
        MERGED,
        ("logits = low.added_to(logits)", "pass", "routers have no adapters"),
    ),
    *plant(
        "jax_engine/layers/latent_attention.py",
        MERGED,
        ("self.k_up, self.k_up_slots, plain", "self.k_up, None, plain", "keys have no adapters"),
        ("    token, head = (numbers", "    head, token = (numbers",
         "heads are taken for tokens"),
    ),
    *plant(
        "jax_engine/operations/xla.py",
        TWIN,
        ("max(-(-rows // ROWS_AT_ONCE), least)", "-(-rows // ROWS_AT_ONCE)",
         "a loop that runs once adds in another order"),
        ("jnp.where((slot > 0)[:, None], both.astype(out.dtype), out)", "both.astype(out.dtype)",
         "rows without an adapter get the first one's"),
    ),
    *plant(
        "cpu_kernels/low_rank/gate.py",
        MERGED,
        ("range(1 + share.group, call", "range(1, call", "experts have the first one's adapter"),
    ),
    *plant(
        "reference/lora.py",
        ("reference/lora.py", "tests/reference/test_lora.py"),
        ("own = stacked[int(number)].T if turned else stacked[int(number)]", "own = stacked[0]",
         "all experts' adapters go to the first"),
    ),
]  # fmt: skip
