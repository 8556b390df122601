"""Bugs in quantised weights between a checkpoint and the kernels: rows of codes, and formats."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/weights"
CODED = ("tests/weights/test_coded.py",)
GGUF = ("tests/models/test_gguf_codes.py",)
STACKS = "tests/weights/test_coded_stacks.py"
OF_ORACLE = (STACKS, "-k=oracle_decodes and (gptq-3 or gptq-8 or order)")
CHOICE = (STACKS, "-k=hopper or lacks or other_devices")
CHECKPOINTS = ("tests/models/test_quantised_models.py",)

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/codes.py",
        CODED,
        ('_spread(rows["outer_scales"], times, groups)', "1", "K-quants lack d"),
        (
            "max(kind.groups(size) for kind in kinds)",
            "kinds[0].groups(size)",
            "finer groups",
        ),
    ),
    *plant(
        f"{FOLDER}/code_sources.py",
        CODED,
        (
            'rows["kind"] = number[rows["kind"]]',
            "pass",
            "rows have the checkpoint's numbers of kinds, not the weight's",
        ),
        ("for name in others:", "for name in ():", "q's order of columns is taken for all"),
    ),
    *plant(
        f"{FOLDER}/transforms.py",
        CODED,
        (
            "case Stack(part=part) | Heads(part=part):",
            "case Heads(part=part):",
            "no experts",
        ),
        ("0 <= axis < axes and all(", "all(", "columns side by side are taken for rows"),
    ),
    *plant(
        f"{FOLDER}/coded.py",
        CODED,
        (
            "codes[:, ::2] | codes[:, 1::2] << 4",
            "codes[:, 1::2] | codes[:, ::2] << 4",
            "turned",
        ),
        ("x = x[:, weight.arrays[ORDER]]", "pass", "x stays in its own order"),
        ("any(one.group % group for one in each)", "False", "groups that do not fit"),
        (
            "any(kind.minimums for kind in each)",
            "each[0].minimums",
            "lost minimums",
        ),
        ("np.repeat(scales, times, axis=-1)", "np.tile(scales, times)", "scales by turns"),
    ),
    *plant(
        f"{FOLDER}/panels.py",
        CODED,
        (
            "any(count % COLUMNS for one in layers",
            "any(0 for one in layers",
            "two in a panel",
        ),
        ("return max(sum(", "return min(sum(", "as many bytes as the smallest layer"),
        (
            "if layer is not None:",
            "if False:",
            "orders of all layers",
        ),
        ('"layer": index_of(layer),', '"layer": index_of(None),', "always the first gate"),
        (
            "jnp.minimum(ids, rows - 1)",
            "ids",
            "a row beyond the last is one of zeros",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_stacks.py",
        OF_ORACLE,
        ("np.float32(_first(kind) - LOWEST)", "np.float32(_first(kind))", "off by eight steps"),
        ("minimums=kind.minimums or _first(kind) != LOWEST", "minimums=kind.minimums", "no shift"),
        ("held[name][...] = 0", "pass", "filled up columns have what was in memory"),
        ("arrays[ORDER], index,", "arrays[ORDER], 0,", "all layers in the first one's order"),
        ("layer=index,", "layer=0,", "every layer is the first"),
        ("self.kind.group < size", "self.kind.group <= size", "one group, but a longer row"),
    ),
    *plant(
        f"{FOLDER}/coded_stacks.py",
        CHOICE,
        ("found.bits == 4 and found.code != CENTRED", "False", "tables are multiplied as integers"),
    ),
    *plant(
        f"{FOLDER}/coded_stacks.py",
        (STACKS, "-k=meet"),
        (
            "weight.arrays[name].at[:, ids]",
            "weight.arrays[name].at[:, ids * 0]",
            "one row's scales",
        ),
        ("[:groups, here] = lowest.T", "[:groups] = lowest.T.mean()", "a minimum for all"),
    ),
    *plant(
        "jax_engine/operations/table.py",
        CHOICE,
        ("if len(matrix.shape) == 2 else None", "if True else None", "experts"),
        ("backend_for(*stacks.call(matrix)) == BACKEND", "True", "on any device"),
    ),
    *plant(
        f"{FOLDER}/panels.py",
        CODED,
        ("index_of(layer) * each", "index_of(layer)", "experts of other layers"),
        (
            "return 2 if matrix.gated else 1",
            "return 1",
            "panels do not alternate",
        ),
    ),
    *plant(
        "jax_engine/models/checkpoints/gguf/gguf_tensors.py",
        GGUF,
        ("first & 63, last & 15 | first >> 6 << 4", "first & 63, last & 15", "high bits are lost"),
        (
            "_halves(scale), -_halves(lowest))\n\n\ndef _q3_k",
            "_halves(scale), _halves(lowest))\n\n\ndef _q3_k",
            "added",
        ),
        ("_fifth(high)) - np.uint8(16)", "_fifth(high))", "codes of Q5_0 are not around zero"),
        ("_planes(low, 4, 64) |", "_planes(low, 4, 32) |", "low bits of Q6_K in planes of 32"),
    ),
    *plant(
        "jax_engine/models/checkpoints/gguf/gguf_tensors.py",
        GGUF,
        ("(element or 0) * len(rows) * row_bytes", "0", "every expert is the first one"),
        ("self.kinds().index(kind)", "0", "all rows are of the first kind"),
    ),
    *plant(
        "jax_engine/models/leaves.py",
        CHECKPOINTS,
        ("ordered = ordered or is_ordered(", "ordered = ordered and is_ordered(", "no act-order"),
        (
            "if isinstance(node, Weight) and name in formats:",
            "if False:",
            "nothing in codes",
        ),
    ),
    *plant(
        "jax_engine/operations/table.py",
        (*CODED, "tests/properties/test_quantised_weights.py"),
        (
            "if not ordered and all(is_w8a8(kind, matrix.shape[-1]) for kind in kinds):",
            "if False:",
            "inputs are not rounded",
        ),
    ),
]
