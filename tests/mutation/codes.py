"""Bugs in quantised weights between a checkpoint and the kernels: rows of codes, and formats."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/weights"
CODED = ("tests/weights/test_coded.py",)
GGUF = ("tests/models/test_gguf_codes.py",)
STACKS = "tests/weights/test_coded_stacks.py"
OF_ORACLE = (STACKS, "-k=oracle_decodes and (gptq-3 or gptq-8 or order)")

MUTANTS: list[Mutant] = [
    *plant(f"{FOLDER}/codes.py", CODED,
        ('_spread(rows["outer_scales"], times, groups)', "1", "K-quants lack d"),
        ("max(kind.groups(size) for kind in kinds)", "kinds[0].groups(size)", "finer groups"),
    ),
    *plant(f"{FOLDER}/code_sources.py", CODED,
        ("for name in others:", "for name in ():", "q's order of columns is taken for all"),
    ),
    *plant(f"{FOLDER}/transforms.py", CODED,
        ("case Stack(part=part) | Heads(part=part):", "case Heads(part=part):", "no experts"),
    ),
    *plant(f"{FOLDER}/coded.py", CODED,
        ("any(kind.minimums for kind in each)", "each[0].minimums", "lost minimums"),
        ("np.repeat(scales, times, axis=-1)", "np.tile(scales, times)", "scales by turns"),
    ),
    *plant(f"{FOLDER}/panels.py", CODED,
        ('"layer": index_of(layer),', '"layer": index_of(None),', "always the first gate"),
        ("jnp.minimum(ids, rows - 1)", "ids", "a row beyond the last is one of zeros"),
    ),
    *plant(f"{FOLDER}/coded_stacks.py", OF_ORACLE,
        ("np.float32(_first(kind) - LOWEST)", "np.float32(_first(kind))", "off by eight steps"),
        ("arrays[ORDER], index,", "arrays[ORDER], 0,", "all layers in the first one's order"),
        ("layer=index,", "layer=0,", "every layer is the first"),
    ),
    *plant(f"{FOLDER}/coded_stacks.py", (STACKS, "-k=meet"),
        ("weight.arrays[name].at[:, ids]", "weight.arrays[name].at[:, ids * 0]",
         "one row's scales"),
        ("[:groups, here] = lowest.T", "[:groups] = lowest.T.mean()", "a minimum for all"),
    ),
    *plant(f"{FOLDER}/panels.py", CODED,
        ("index_of(layer) * each", "index_of(layer)", "experts of other layers"),
        ("return 2 if matrix.gated else 1", "return 1", "panels do not alternate"),
    ),
    *plant("jax_engine/models/checkpoints/gguf/gguf_tensors.py", GGUF,
        ("_halves(scale), -_halves(lowest))\n\n\ndef _q3_k",
         "_halves(scale), _halves(lowest))\n\n\ndef _q3_k", "added"),
    ),
    *plant("jax_engine/models/checkpoints/gguf/gguf_tensors.py", GGUF,
        ("self.kinds().index(kind)", "0", "all rows are of the first kind"),
    ),
]  # fmt: skip
