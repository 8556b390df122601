"""Bugs in weight formats: arrays, packing, products and rows."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/weights"
FORMATS = ("tests/weights/test_formats.py", "tests/weights/test_loading.py")
COLUMNS = ("tests/weights/test_columns.py",)
EXPERTS = ("tests/models/test_families.py", "-k mixtral")
COPIES = ("tests/models/test_decoder.py", "-k copies")

MUTANTS: list[Mutant] = [
    *plant(f"{FOLDER}/format.py", FORMATS,
        ("activate(out, activation)", "out", "the activation is left out"),
    ),
    *plant("jax_engine/layers/experts.py", EXPERTS,
        ("at[order].set(places", "at[places].set(order", "a token gets what others' pairs made"),
    ),
    *plant(f"{FOLDER}/dense.py", FORMATS,
        ("(((1,), (1,)), ((), ()))", "(((1,), (0,)), ((), ()))", "contracted on the other axis"),
        ("dynamic_index_in_dim(values, layer", "dynamic_index_in_dim(values, 0 * layer",
         "every layer multiplies by the first one's matrix"),
        ("made_of.read_into(source, held[VALUES], words)",
         "super().load(source, made_of, words, held, matrix)",
         "what is held as it is takes a second copy"),
        ("values, dtype)[: len(x)]", "values, dtype)", "a row too many comes back"),
        ('get(mode="clip")', 'get(mode="clip") * 0.5', "vectors at half their length"),
    ),
    *plant(f"{FOLDER}/panels.py", FORMATS,
        ("count = jnp.int32(x.shape[0]) if num_rows is None else num_rows",
         "count = jnp.int32(x.shape[0] - 1)", "the last token is taken for padding"),
        ("width=width, layer=layer", "width=width", "always the first layer"),
    ),
    *plant(f"{FOLDER}/panels.py", COPIES,
        ("indexed = True", "indexed = False", "the scan copies each layer's panels"),
    ),
    *plant(f"{FOLDER}/panels.py", FORMATS,
        ("first + place, num_rows", "place, num_rows", "another layer's matrices"),
    ),
    *plant(
        f"{FOLDER}/transforms.py",
        ("tests/weights/test_transforms.py", "tests/weights/test_declarations.py"),
        ("start += size", "start += 0", "fused tensors lie on each other"),
        ("self.word: value}", "self.word: place}", "layers are numbered from zero in every stack"),
        ("np.take(values, self.order, self.axis)", "values", "the rows stay where they are"),
        ("values = np.empty(out.shape, np.float32)", "values = np.empty(out.shape, out.dtype)",
         "one in bfloat16"),
    ),
    *plant(f"{FOLDER}/transforms.py", ("tests/weights/test_transforms.py",),
        ("reshape(-1, 2).T", "reshape(2, -1).T", "halves to pairs, the wrong way round"),
        ("np.cumsum(counts)[:-1], axis=1", "len(counts), axis=1", "as many keys as queries"),
    ),
    *plant(f"{FOLDER}/codes.py", COLUMNS,
        ('(("", kind.group), ("outer_", kind.outer))', '(("", kind.group),)', "no outer scales"),
        ('rows["codes"][..., start :', 'rows["codes"][..., 0 :', "each share has the first codes"),
    ),
    *plant(f"{FOLDER}/transforms.py", COLUMNS,
        ("(kind.group, kind.outer)", "(kind.group,)", "a block of 256 columns may be cut"),
        ("values[..., self.start : self.stop]", "values[..., : out.shape[-1]]",
         "the first columns"),
    ),
    *plant(f"{FOLDER}/code_sources.py", ("tests/weights/test_coded.py",),
        ("np.take(every, order, axis)", "every",
         "rows that a device has are counted as all rows of their type"),
    ),
]  # fmt: skip
