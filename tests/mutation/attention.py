"""Bugs in the attention twin and in the operations on blocks."""

from tests.mutation.planting import Mutant, plant

# The property suite on one kernel: interpreting the others takes long, and they have no bug.
TESTS = ("tests/kernels", "--kernel=tests.kernels.kernel:xla")
FOLDER = "pallas_kernels"

METADATA: list[Mutant] = [
    *plant(f"{FOLDER}/decode_rows.py", TESTS,
        ("rows_before[token_seq] + decode, -1)", "rows_before[token_seq] + decode, 0)",
         "prefills get a row's sum"),
    ),
    *plant(f"{FOLDER}/decode_rows.py", ("tests/kernels/test_gpu_metadata.py",),
        ("(token < starts[-1]) & (decode >= 0)", "(decode >= 0)", "padding gets a result"),
    ),
    *plant(f"{FOLDER}/xla/metadata.py", TESTS,
        ("-(-(lead + rows.other_queries) // size)", "(lead + rows.other_queries) // size",
         "the last tile is lost"),
    ),
    *plant(f"{FOLDER}/ranges.py", TESTS,
        ("(boundaries[1:] <= index", "(boundaries[1:] < index", "the first of a range goes astray"),
    ),
]  # fmt: skip

DECODE: list[Mutant] = plant(f"{FOLDER}/xla/decode.py", TESTS,
    ("(position < context_len[:, None])", "(position <= context_len[:, None])", "one key too many"),
    ("jnp.maximum(context_len - window, 0)", "jnp.maximum(context_len - window + 1, 0)",
     "window one short"),
    ("jnp.maximum(context_len - window, 0)", "jnp.maximum(context_len - window - 1, 0)",
     "window one long"),
    ("(position - context_len[:, None] + 1)", "(context_len[:, None] - position)", "ALiBi's sign"),
    ("keep = jnp.exp(top - new_top)", "keep = jnp.ones_like(top)", "old parts are not rescaled"),
    ("part = part + low // chunk", "part = part", "a window starts at the first chunk"),
    ("-(-metadata.row_context_len // chunk)", "metadata.row_context_len // chunk",
     "the tail is left out"),
    (".astype(jnp.float32) * options.scale", ".astype(jnp.float32)", "no scale"),
    ("_sum_items(belongs, item_out)", "_sum_items(belongs.T, item_out)", "items of other rows"),
    ("first += count * step", "first += 0", "items are counted twice"),
)  # fmt: skip

PREFILL: list[Mutant] = plant(f"{FOLDER}/xla/prefill.py", TESTS,
    ("(key <= query) & (key < end)", "(key < query) & (key < end)", "a token misses itself"),
    ("(key <= query) & (key < end)", "(key <= query + 1) & (key < end)", "sees the future"),
    ("position = context_lens[seq] - query_start_loc[seq + 1] + start",
     "position = start - query_start_loc[seq]", "a chunk forgets the context before it"),
    ("keep = jnp.exp(top - new_top)", "keep = jnp.ones_like(top)", "old chunks are not rescaled"),
    ("-(-end // chunk), add", "end // chunk, add", "the last chunk is left out"),
    ("distance = (key - query)", "distance = (query - key)", "ALiBi's sign"),
    ("jnp.minimum(first + metadata.seq_queries[seq] - start, size)", "jnp.int32(size)",
     "the last tile writes past its sequence"),
)  # fmt: skip

WINDOWS: list[Mutant] = plant(
    f"{FOLDER}/xla/prefill.py",
    ("tests/kernels/test_paged_attention.py", TESTS[1], "-k=test_agrees_with and window"),
    ("key > query - window", "key >= query - window", "window one long"),
    ("begin - window + 1, 0)", "begin - window + 2, 0)", "values at the window's edge are lost"),
)  # fmt: skip

CHOICE: list[Mutant] = plant(f"{FOLDER}/backends.py", ("tests/kernels/test_backends.py",),
    ("if sm < oldest:", "if sm <= oldest:", "the oldest GPU is turned away"),
    ("if sm > NEWEST.get(name, sm):", "if False:", "Blackwell gets Hopper's kernels"),
    ("may_interpret and interpreting()", "interpreting()", "None picks an interpreter"),
    ("or missing(name)\n        if", "or None\n        if", "nobody asks what a backend lacks"),
)  # fmt: skip

BLOCKS: list[Mutant] = [
    *plant(f"{FOLDER}/xla/blocks.py", TESTS,
        ("jnp.where((element >= per_row(begin)) & (element < per_row(end)), values, 0.0)",
         "values", "what lies past the context reaches the sum"),
        ("jnp.tanh(scores / options.soft_cap)", "jnp.tanh(scores)", "the soft cap"),
        ("return jnp.where(mask, scores, MASKED)", "return jnp.where(mask, scores, 0.0)", "mask"),
        ("(call.layer * kv + place)", "(call.layer + place)", "another layer's cache"),
        ("[call.layer, call.places[which]]", "[0, call.places[which]]", "another layer's scales"),
        ("[call.layer, call.places[which]]", "[call.layer, 0]", "values with keys' scales"),
        ("denominator * keep + jnp.exp(sinks - new_top)", "denominator * keep", "no sink"),
        ("out * keep[..., None], new_top", "out, new_top", "a heavy sink inflates the result"),
    ),
    *plant(f"{FOLDER}/xla/blocks.py", ("tests/kernels/test_xla.py",),
        ("jnp.where(empty, -jnp.inf, top + jnp.log(total))", "top + jnp.log(total)", "empty lse"),
    ),
    *plant(f"{FOLDER}/xla/attention.py", TESTS,
        ("is_row = (row >= 0)", "is_row = (row > 0)", "the first decode is dropped"),
    ),
    *plant(f"{FOLDER}/kv_write.py", ("tests/kernels/test_kv_write.py",),
        ("jnp.where(slot_mapping < 0, num_blocks, slot_mapping // block_size)",
         "slot_mapping // block_size", "slot -1 writes into the last block"),
        ("slot_mapping % block_size", "(slot_mapping + 1) % block_size", "a wrong slot"),
        ("jnp.stack(new, 1)", "jnp.stack(new[::-1], 1)", "keys and values swapped"),
        ("kv_scales[layer, i]", "kv_scales[layer, 0]", "values take the keys' scales"),
        ("jnp.clip(jnp.rint(quotient), -128, 127)", "jnp.clip(jnp.rint(quotient), -100, 127)",
         "int8 is clipped short"),
        ("jnp.rint(quotient)", "quotient", "int8 is cut off instead of rounded"),
        ("jnp.clip(quotient, -largest, largest)", "quotient", "what is large becomes NaN"),
    ),
    *plant(f"{FOLDER}/block_copy.py", ("tests/kernels/test_block_copy.py",),
        ("jnp.where(ids < 0, kv_cache.shape[2], ids)", "ids", "padding overwrites a block"),
        ("_put(kv_cache, dst, _get(kv_cache, src, backend), backend)",
         "_put(kv_cache, src, _get(kv_cache, dst, backend), backend)",
         "a copy in the wrong direction"),
    ),
    *plant(f"{FOLDER}/merge.py", ("tests/kernels/test_merge.py",),
        ("top + jnp.log(jnp.where(total == 0, 1.0, total))", "top", "a merge forgets its weight"),
        ("jnp.where(jnp.isneginf(top), 0.0, top)", "top", "two empty parts make a NaN"),
    ),
]  # fmt: skip

MUTANTS = [*METADATA, *DECODE, *PREFILL, *WINDOWS, *CHOICE, *BLOCKS]
