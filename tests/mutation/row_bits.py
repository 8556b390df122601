"""Bugs in what gives a row the same bits for any number of rows."""

from tests.mutation.planting import Mutant, plant

KERNELS = "tests/kernels/test_batch_invariant_rows.py"
PRODUCTS = (KERNELS, "-k=product or parts")
SUMS = (KERNELS, "-k=norms or logsumexp")
REFUSED = (KERNELS, "-k=refused")
ROW_SUMS = ("tests/kernels/test_row_sums.py",)
VECTORS = ("tests/kernels/test_whole_vectors.py",)

GPU: list[Mutant] = [
    *plant("pallas_kernels/triton/product.py", PRODUCTS,
        ("first = part * cut.steps", "first = part", "parts begin one step apart"),
        ("jnp.minimum(cut.steps, -(-size // cut.columns) - first)", "cut.steps",
         "the last part is as long as the others"),
        ("(layer[0] * out + ", "(layer[0] + ", "layers lie one row apart"),
        ("if size % columns.shape[1] == 0:", "if True:", "the last step reads behind the row"),
    ),
    *plant("pallas_kernels/triton/row_sums.py", SUMS,
        ("lax.rem(row, weight", "lax.div(row, weight", "neighbouring rows share a head's scale"),
        ("jnp.where(exists, wide - wide.sum() / size, 0.0)", "wide - wide.sum() / size",
         "padding is in the variance"),
        ("(wide + held).astype(residual.dtype)", "wide + held",
         "the norm is of a sum that was not rounded"),
        ("column < size, -jnp.inf)", "column < size, 0.0)", "padding is a logit of 0"),
        ("jnp.where(jnp.abs(top) == jnp.inf, 0.0, top)", "top",
         "a row that excludes every token is NaN"),
    ),
    *plant("pallas_kernels/batch_invariant.py", REFUSED,
        (" or 0 in x.shape:", ":", "a product of no rows is launched"),
        (" or len(x) % len(weight):", ":", "the last rows have the scales of other heads"),
        ("for one in (weight, bias)", "for one in (weight,)", "a bias of another shape is read"),
    ),
]  # fmt: skip

CPU: list[Mutant] = [
    *plant("jax_engine/operations/equal_bits.py", ROW_SUMS,
        ("range(0, size, width)", "range(width, size, width)", "a row's first part is left out"),
    ),
    *plant("jax_engine/operations/equal_bits.py", VECTORS,
        ("x.shape[-1] % NUMBERS == 0", "x.shape[-1] >= NUMBERS",
         "a long row's rest is no whole vector"),
        ("lax.optimization_barrier(flat.reshape(-1, NUMBERS))", "flat.reshape(-1, NUMBERS)",
         "the padding is fused away"),
        ("lax.optimization_barrier(function(whole))", "function(whole)",
         "only the numbers that are wanted are computed"),
    ),
]  # fmt: skip

MUTANTS = GPU + CPU
