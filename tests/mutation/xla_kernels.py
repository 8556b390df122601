"""More bugs in the portable kernels, in the operations on blocks, and in what chooses a kernel."""

from tests.mutation.planting import Mutant, plant

FOLDER = "pallas_kernels"
KIT = "--kernel=tests.kernels.kernel:xla"
UNREAD = ("tests/kernels/test_invariants.py", KIT, "-k=i41_slots and 5 or i41_table and all")
COMPANY = ("tests/kernels/test_invariants.py", KIT, "-k=i36_company_does_not")
ORACLE = ("tests/kernels/test_paged_attention.py", KIT, "-k=agrees_with and everything")
METADATA = ("tests/kernels/test_gpu_metadata.py",)
TUNING = ("tests/kernels/test_tuning.py",)
BACKENDS = ("tests/kernels/test_backends.py",)

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/xla/decode.py",
        ORACLE,
        ("denominator * keep + _sum", "denominator + _sum", "old weights are not rescaled"),
        (
            "lax.dynamic_slice_in_dim(x, row[0], step)",
            "lax.dynamic_slice_in_dim(x, 0, step)",
            "row",
        ),
    ),
    *plant(
        f"{FOLDER}/xla/decode.py",
        ("tests/kernels/test_xla.py", "-k=far_larger"),
        (
            "jnp.where(belongs[..., None], item_top, MASKED).max(1)",
            "item_top.max(1)",
            "another row's largest score",
        ),
    ),
    *plant(
        f"{FOLDER}/xla/prefill.py",
        ORACLE,
        (
            "jnp.repeat(call.sinks.reshape(kv_heads, -1), num, 1)",
            "jnp.tile(call.sinks.reshape(kv_heads, -1), (1, num))",
            "sinks of other heads of the group",
        ),
        ("lse = lse.reshape(heads, num).T", "lse = lse.reshape(num, heads)", "lse of other tokens"),
        ("(i - metadata.seq_tiles[seq]) * size", "i * size", "tiles of later sequences"),
        ("(row < end), tile", "(row <= end), tile", "a tile writes one token of the next sequence"),
    ),
    *plant(
        f"{FOLDER}/xla/blocks.py",
        UNREAD,
        (
            "begin = jnp.clip(low[:, None] - slots, 0, block_size)",
            "begin = jnp.clip(low[:, None] - slots - 1, 0, block_size)",
            "a value before the window is read",
        ),
    ),
    *plant(
        f"{FOLDER}/gpu_metadata.py",
        METADATA,
        (
            "-(-num_tokens // tile_queries) + num_seqs",
            "-(-num_tokens // tile_queries)",
            "no room for the last tiles",
        ),
        (
            "(tile - tiles_before[tile_seq]) * tile",
            "(tile - tiles_before[0]) * tile",
            "tile starts",
        ),
        (
            "-(-rows.other_queries // tile_queries)",
            "rows.other_queries // tile_queries",
            "the last tile is lost",
        ),
    ),
    *plant(
        f"{FOLDER}/block_copy.py",
        ("tests/kernels/test_block_copy.py",),
        ("jnp.maximum(ids, 0)", "jnp.maximum(ids, 1)", "block 0 is never read"),
        (".set(jnp.moveaxis(", ".add(jnp.moveaxis(", "what was in a block stays in it"),
        (
            "if src.ndim != 1 or src.shape != dst.shape:",
            "if src.ndim != 1:",
            "lists of two lengths",
        ),
    ),
    *plant(
        f"{FOLDER}/kv_write.py",
        ("tests/kernels/test_kv_write.py",),
        ("new.astype(jnp.float32) / scales", "new.astype(jnp.float32) * scales", "scales inverted"),
        ("any(one.shape != tokens for one in new)", "k.shape != tokens", "values of another shape"),
    ),
    *plant(
        f"{FOLDER}/merge.py",
        ("tests/kernels/test_merge.py",),
        (
            "jnp.where(weight[..., None] > 0, out.astype(jnp.float32), 0.0)",
            "out.astype(jnp.float32)",
            "what an empty part holds takes part",
        ),
        ("scores = lse.astype(jnp.float32)", "scores = lse", "merged in half precision"),
        ("merged.astype(out.dtype)", "merged", "the result is always float32"),
    ),
    *plant(
        f"{FOLDER}/tuning.py",
        TUNING,
        ("value < least or value & (value - 1)", "value < least", "48 is a power of two"),
        (
            "table.get((device_kind, kernel, *shape))",
            'table.get(("NVIDIA H200", kernel, *shape))',
            "device",
        ),
        ("set(values) != known", "not set(values) <= known", "an entry that lacks something"),
        (
            "return default(kernel, head_dim, dtype) if found is None else found",
            "return default(kernel, head_dim, dtype)",
            "the table is not read",
        ),
        (
            "    finally:\n        _instead = None",
            "    finally:\n        pass",
            "a table stays in force",
        ),
    ),
    *plant(
        f"{FOLDER}/backends.py",
        BACKENDS,
        (
            "may_interpret=isinstance(backend, str)",
            "may_interpret=True",
            "several may be interpreted",
        ),
        ("if unknown or names == ():", "if unknown:", "no backend at all"),
        ("except ImportError as error:", "except KeyError as error:", "a module that is missing"),
        ("others = [name for name in BACKENDS if name not in lacks]", "others = []", "no advice"),
    ),
    *plant(
        f"{FOLDER}/metadata.py",
        ("tests/kernels/test_refused.py",),
        (
            "(self.num_tokens, self.num_seqs) != (num_tokens, num_seqs)",
            "self.num_tokens != num_tokens",
            "metadata of another number of sequences",
        ),
    ),
]
