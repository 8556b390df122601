"""Bugs in what adapters add: kernels, their arrays, slots, and the steps that use them."""

from tests.mutation.planting import Mutant, plant

KERNELS = ("tests/kernels/test_low_rank.py",)
WORKER = ("tests/worker/test_adapters.py",)
SLOTS = ("tests/worker/test_adapters.py", "-k=slot or evicted or flight or refused")
MERGED = ("tests/worker/test_adapters.py", "-k=merged or embedding")
AS_PEFT = ("tests/lora/test_peft_parity.py", "-k=gemma")
PLAN = ("tests/worker/test_adapters.py", "-k=bits or program_of_its_own")

GPU_KERNELS = ("tests/kernels/test_mosaic_low_rank.py", "-k=gate_and_up or hold_anything")
ON_A_GPU = ("tests/worker/test_adapters.py", "-k=gpu_s_kernels")

MUTANTS: list[Mutant] = [
    *plant(
        "cpu_kernels/low_rank/shrink.py",
        KERNELS,
        ("LANES * block < ranks[2 * part]", "LANES * block <= 0 * ranks[2 * part]",
         "ranks above 16 are dropped"),
        ("widen_some(kind, start + item * at, max(size - at, 0))",
         "widen_some(kind, start + item * at, LANES)", "a row goes on in the next one"),
        ("store(place, add(load(sums), load(sums + BYTES)))", "store(place, load(sums))",
         "odd columns are dropped"),
    ),
    *plant(
        "cpu_kernels/low_rank/expand.py",
        KERNELS,
        ("        if one.biased != 0:\n", "        if other.biased != 0:\n",
         "biases of another part"),
        ("Streams(step * one.part, step * other.part, 4)", "Streams(0, 0, 4)",
         "all parts have the first one's A"),
        ("max(one.rank, other.rank)", "one.rank", "the second half has the first one's rank"),
        ("    if count >= LANES:\n", "    if count >= 0:\n", "columns behind a part's last one"),
    ),
    *plant(
        "cpu_kernels/low_rank/arrays.py",
        KERNELS,
        ("return layer * slots + slot - 1", "return layer * slots", "all rows have the first slot"),
        ("min(number, count - 1)]", "number]", "a tile goes on with other adapters' rows"),
    ),
    *plant(
        "cpu_kernels/low_rank/gate.py",
        KERNELS,
        ("place + 4 * COLUMNS", "place", "up's part is added to the gate"),
        ("step * (here - row)", "step * here * 0", "all of it is added to the first row"),
    ),
    *plant(
        "jax_engine/operations/xla.py",
        KERNELS,
        ("own = (low.rows.slot == number)[:, None]", "own = (low.rows.slot >= number)[:, None]",
         "later slots' rows get the earlier ones' adapters"),
        ("(both + wide[:, -1])", "both", "XLA forgets biases"),
    ),
    *plant(
        "jax_engine/weights/low_rank.py",
        KERNELS,
        ("jnp.where(missing[..., None], jnp.zeros((), rows.dtype), rows)", "rows",
         "padding of panels is not zero"),
        ("run = runs[1 if gated and start >= size // 2 else 0]", "run = runs[0]",
         "gate and up do not alternate"),
    ),
    *plant(
        "jax_engine/weights/low_rank.py",
        MERGED,
        ("odd = (token % 2 == 1)", "odd = (token % 2 == 0)", "the neighbour's column is looked up"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        MERGED,
        ("scaling = np.float32(one.scaling)", "scaling = np.float32(1)",
         "the scaling is forgotten"),
        ("_Rows(values, is_turned(made_of)), made[B], words)\n\n\ndef _scaled",
         "_Rows(values), made[B], words)\n\n\ndef _scaled", "B is not turned with GPT-2's"),
        ("        first = part * layout.held_rank\n        made[A][first :",
         "        first = 0\n        made[A][first :", "all parts' A's go to the first"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        AS_PEFT,
        ("np.multiply(one.bias, scaling,", "np.multiply(one.bias, np.float32(1),",
         "a bias is not scaled, unlike PEFT's"),
        ("made[RANKS][part] = one.rank, one.bias is not None",
         "made[RANKS][part] = one.rank, False", "slots have no biases"),
    ),
    *plant(
        "jax_engine/lora/slot_weights.py",
        SLOTS,
        ("changed | self._changed[slot - 1]", "changed",
         "modules of the adapter before stay in a slot"),
        ("np.int32(slot - 1)", "np.int32(0)", "all adapters go to the first slot"),
        ("        if not 1 <= slot <= self.count:", "        if not 0 <= slot <= self.count:",
         "slot 0 is written"),
    ),
    *plant(
        "jax_engine/worker/compiled_steps.py",
        PLAN,
        ("(this_device().branches_wait and not shape.lora)", "this_device().branches_wait",
         "where branches wait no step has adapters"),
        ("adapters.slot[index]", "adapters.slot[:rows]", "heads take other rows' adapters"),
    ),
    *plant(
        "jax_engine/worker/step_plan.py",
        PLAN,
        ('    fields["adapters"][:count] = [row.adapter for row in rows]\n', "",
         "the device is not told who has an adapter"),
        ("        shape = with_adapters(shape)\n", "        pass\n",
         "a step with adapters takes the program without them"),
        ("return jnp.where(token < query_start_loc[-1], slots, 0)",
         "return jnp.roll(slots, 1)", "tokens take their neighbours' adapters"),
    ),
    *plant(
        "pallas_kernels/mosaic/low_rank.py",
        GPU_KERNELS,
        ("return jnp.where(mine, found, total)", "return found",
         "rows are shrunk by their tile's last adapter"),
        ("one + plgpu.down(of.astype(jnp.float32), ROWS)", "one", "Mosaic forgets biases"),
        ("jnp.where(has, new, old)", "new", "a row without an adapter has 0 added"),
        ("for piece in (1, 0):", "for piece in (0,):", "shrunk rows are rounded to 8 bits"),
        (" * blocks + block", " * blocks", "all ranks are the first 16"),
        ("held.at[of_half[block, place, 2]]", "held.at[0]", "all parts have the first one's A x"),
        ("all_panels + block * panels", "all_panels", "all columns have the first panels' B"),
        ("pl.ds(half * LANES, LANES)]\n            plgpu.copy",
         "pl.ds(0, LANES)]\n            plgpu.copy", "both halves of a panel are the first one"),
    ),
    *plant(
        "pallas_kernels/mosaic/low_rank_plan.py",
        ("tests/kernels/test_mosaic_low_rank.py", "-k=tile or chunks or panels or refused"),
        ("dtype=jnp.int32) - 1, slots)", "dtype=jnp.int32), slots)",
         "a tile's first adapter is left out"),
        ("(0, tiles * ROWS - len(slot))", "(tiles * ROWS - len(slot), 0)",
         "rows have the adapters of others"),
        ("range(LANES, CHUNK + 1, LANES)", "range(LANES, CHUNK, LANES)",
         "chunks are never as large as they may be"),
        ("if panels % some == 0 and ", "if ", "the last panels are left out"),
        ("rank > MOST_RANKS or ", "", "slots that do not fit into shared memory are accepted"),
    ),
    *plant(
        "jax_engine/weights/low_rank.py",
        ("tests/kernels/test_mosaic_low_rank.py", "-k=twin_reads"),
        ("rows[..., layout.held_rank, None]", "rows[..., -1:]",
         "the twin takes a GPU's padding for biases"),
    ),
    *plant(
        "jax_engine/lora/slot_weights.py",
        ON_A_GPU,
        ("bias_rows=this_device().bias_rows", "bias_rows=1", "a GPU's slots are a CPU's"),
    ),
    *plant(
        "jax_engine/operations/table.py",
        ON_A_GPU,
        ("return XLA._replace(add_low_rank=add_low_rank_on_gpu)", "return XLA",
         "a GPU's kernels of adapters are not used"),
    ),
    *plant(
        "jax_engine/worker/step_shape.py",
        ("tests/worker/test_step_shape.py", "-k=adapters"),
        ("-(-shape.num_rows // ROWS_WITH_ADAPTERS)", "(shape.num_rows // ROWS_WITH_ADAPTERS)",
         "a step with adapters has no room for its rows"),
        ("    if not shape.decode_only:\n        return replace(shape, lora=True)\n", "",
         "steps with prompts and adapters have as many tokens as rows"),
    ),
]  # fmt: skip
