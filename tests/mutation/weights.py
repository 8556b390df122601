"""Bugs in weight formats: arrays, packing, products and rows."""

from tests.mutation.planting import Mutant, plant

FOLDER = "jax_engine/weights"
FORMATS = ("tests/weights/test_formats.py",)
DECODER = ("tests/models/test_decoder.py", "-k formats")

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/format.py",
        FORMATS,
        ("jax.nn.silu(gate) * up", "jax.nn.silu(up) * gate", "gate and up are swapped"),
        ("jax.nn.silu(gate)", "jax.nn.gelu(gate)", "another activation"),
        ("out = out + bias.astype(out.dtype)", "pass", "the bias comes too late"),
    ),
    *plant(
        f"{FOLDER}/dense.py",
        FORMATS,
        ("(((1,), (1,)), ((), ()))", "(((1,), (0,)), ((), ()))", "contracted on the other axis"),
        (
            "dynamic_index_in_dim(values, layer",
            "dynamic_index_in_dim(values, 0 * layer",
            "every layer multiplies by the first one's matrix",
        ),
        ("out_dtype)[:tokens]", "out_dtype)", "a row too many comes back"),
        ('get(mode="clip")', 'get(mode="clip") * 0.5', "vectors at half their length"),
        ('None if matrix.gated else "out"', '"out"', "gates are cut from what they gate"),
    ),
    *plant(
        f"{FOLDER}/panels.py",
        FORMATS,
        ("2 if matrix.gated else 1", "1", "panels of a gated matrix do not alternate"),
        (
            "jnp.int32(x.shape[0]) if num_rows is None else num_rows",
            "jnp.int32(x.shape[0] - 1)",
            "the last token is taken for padding",
        ),
        ("layer=layer, num_rows=num_rows)", "num_rows=num_rows)", "always the first layer"),
    ),
    *plant(
        f"{FOLDER}/dense.py",
        DECODER,
        ("indexed = True", "indexed = False", "the scan slices what is indexed again"),
    ),
    *plant(
        f"{FOLDER}/choose.py",
        FORMATS,
        ('target_device().platform == "cpu"', "False", "a CPU copies each layer's weights"),
    ),
]
