"""Bugs in adapters of experts, of routers and of the heads of latent attention."""

from tests.mutation.planting import Mutant, plant

FILES = ("tests/lora/test_experts.py",)
MERGED = ("tests/worker/test_adapters.py", "-k=merged_model and (qwen2_moe or deepseek_v2)")
TURNED = ("tests/worker/test_adapters.py", "-k=merged_model and gpt_oss")
TWIN = ("tests/worker/test_expert_adapters.py", "-k=twin and deepseek_v2 and False")

MUTANTS: list[Mutant] = [
    *plant("jax_engine/lora/peft.py", FILES,
        ("(-1, rank, count)), (2, 0, 1)", "(-1, count, rank)), (1, 0, 2)",
         "B has all ranks of an expert side by side"),
        ("TURNED_UP_TO = (0, 18)", "TURNED_UP_TO = (0, 19)",
         "0.19 is taken for a version that turns parameters"),
        ("modules.fused[parameter]", "modules.fused[next(iter(modules.fused))]",
         "all parameters go to the first layer's experts"),
    ),
    *plant("jax_engine/lora/peft.py", FILES,
        ("        return parameters[name]\n", "        return name\n",
         "ranks of a parameter are looked up by the experts' names"),
    ),
    *plant("jax_engine/lora/adapted_leaves.py", MERGED,
        ("made[A][expert, first : first + one.rank]", "made[A][0, first : first + one.rank]",
         "all experts' A's go to the first"),
        ("made[A][:, : one.rank], made[B][...] = one.a, scaled",
         "made[A][:1, : one.rank], made[B][...] = one.a, scaled",
         "the first head alone has values"),
        ("made[B][..., : one.rank] = one.a.T", "made[B][:1, :, : one.rank] = one.a.T",
         "the first head alone has keys"),
    ),
    *plant("jax_engine/lora/adapted_leaves.py", TURNED,
        ("made_of.read_into(_Rows(values, is_turned(made_of)), made[B], words)\n\n\n"
         "def _of_layer",
         "made_of.read_into(_Rows(values), made[B], words)\n\n\ndef _of_layer",
         "B is not turned with gpt-oss's experts"),
    ),
    *plant("jax_engine/weights/low_rank.py", MERGED,
        ("(slot - 1) * layout.choices + choice + 1", "(slot - 1) * layout.choices + 1",
         "all rows have the first expert's adapter"),
    ),
    *plant("jax_engine/layers/experts.py", MERGED,
        ("place[:, None] >= pairs.starts[1:]", "place[:, None] >= pairs.starts[:-1]",
         "rows have the next expert's adapter"),
    ),
    *plant("jax_engine/layers/latent_attention.py", MERGED,
        ("self.k_up, self.k_up_slots, plain", "self.k_up, None, plain", "keys have no adapters"),
        ("    token, head = (numbers", "    head, token = (numbers", "heads are taken for tokens"),
    ),
    *plant("jax_engine/operations/xla.py", TWIN,
        ("max(-(-rows // ROWS_AT_ONCE), least)", "-(-rows // ROWS_AT_ONCE)",
         "a loop that runs once adds in another order"),
    ),
    *plant("cpu_kernels/low_rank/gate.py", MERGED,
        ("range(1 + share.group, call", "range(1, call", "experts have the first one's adapter"),
    ),
    *plant("reference/lora.py", ("reference/lora.py", "tests/reference/test_lora.py"),
        ("own = stacked[int(number)].T if turned else stacked[int(number)]", "own = stacked[0]",
         "all experts' adapters go to the first"),
    ),
]  # fmt: skip
