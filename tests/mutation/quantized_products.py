"""Bugs in products with quantised weights on GPUs, and in their XLA twin."""

from tests.mutation.planting import Mutant, plant

FILE = "tests/kernels/test_quantized_matmul.py"
TWIN = (FILE, "-k=twin")
# Interpreted; one kind is enough for each.
INT4 = (FILE, "-k=exact_where and int4")
INT8 = (FILE, "-k=exact_where and int8")
OTHERS = (FILE, "-k=other_shapes")
PARTS = (FILE, "-k=parts_of_x or share_columns")

MUTANTS: list[Mutant] = [
    *plant("pallas_kernels/quantized_matmul.py", TWIN,
        ("(codes & 15, codes >> 4)", "(codes >> 4, codes & 15)", "columns of a byte change places"),
        ("_spread(scales, group // len(parts)", "_spread(scales, group", "a byte is one column"),
        ("(0, -x.shape[1] % group)", "(0, x.shape[1] % group)", "the last group is no whole one"),
        ("shared is None or group % 2 == 0", "True", "a byte whose columns are of two groups"),
        ("axis=1, total_repeat", "axis=0, total_repeat", "rows share scales instead of columns"),
    ),
    *plant("pallas_kernels/quantized_matmul.py", INT8,
        ("dynamic_index_in_dim(stack, layer,", "dynamic_index_in_dim(stack, 0,",
         "layer 0's scales"),
    ),
    *plant("pallas_kernels/mosaic/quantized_matmul.py", INT4,
        ("jnp.bfloat16(8), plgpu", "jnp.bfloat16(7), plgpu", "even columns are off by one"),
        ("(some ^ jnp.uint8(0x80)) & ", "some & ", "odd columns are off by eight"),
        ("& jnp.uint8(0xF0)", "& jnp.uint8(0xFF)", "odd columns keep the low bits of even ones"),
        ("span * len(left)", "span", "the second span meets the x of the first"),
        ("codes.at[number, rows, held]", "codes.at[0, rows, held]", "every layer is the first"),
    ),
    *plant("pallas_kernels/mosaic/quantized_matmul.py", INT8,
        ("plgpu.div(step * sizes.depth, sizes.group)", "plgpu.div(step * sizes.span, sizes.group)",
         "later steps have the scales of earlier groups"),
        ("scale_steps.at[slot, span]", "scale_steps.at[slot, 0]", "spans share a scale"),
        ("minimum_steps.at[slot, span]", "minimum_steps.at[slot, 0]", "spans share a minimum"),
        ("sum_steps.at[slot, span,", "sum_steps.at[slot, 0,", "spans share a sum of x"),
        ("minimums.at[number,", "minimums.at[0,", "the first layer's minimums"),
        ("pl.ds(step * sizes.spans, sizes.spans)", "pl.ds(step, sizes.spans)",
         "later steps have sums of earlier columns"),
        ("* ROWS, sizes.rows - ROWS)", "* ROWS, sizes.rows - ROWS - ALIGNMENT)",
         "the last rows are never computed"),
    ),
    *plant("pallas_kernels/mosaic/quantized_matmul.py", OTHERS,
        ("pl.when(following < end)", "pl.when(following < end - 1)", "the last step never comes"),
        ("plgpu.div(sizes.steps * split, sizes.splits)",
         "plgpu.div(sizes.steps, sizes.splits) * split", "an uneven split counts steps twice"),
        ("functools.reduce(operator.add, sums)", "sums[0]", "only the first split counts"),
        ("left[..., middle:]", "left[..., :middle]", "the first half of a span counts twice"),
        ("pl.ds(token, sizes.sums)", "pl.ds(0, sizes.sums)", "all tiles have the first's sums"),
        ('lax.axis_index("tile") * sizes.tokens', "0", "all tiles have the first tokens"),
    ),
    *plant("pallas_kernels/mosaic/quantized_plan.py", (FILE, "-k=refused"),
        ("else 32 if codes.dtype", "else 16 if codes.dtype", "half an instruction of nibbles"),
    ),
    *plant("pallas_kernels/quantized_matmul.py", (FILE, "-k=any_numbers and int8"),
        ("mosaic.multiply(x, codes, scales, minimums,", "mosaic.multiply(x, codes, scales, None,",
         "the kernel adds no minimums"),
    ),
    *plant("pallas_kernels/mosaic/quantized_matmul.py", PARTS,
        ("[1, 1 / 16]", "[1, 1]", "a high nibble counts sixteen times"),
        ("transpose(1, 3, 0, 2)", "transpose(3, 1, 0, 2)", "all even columns, then all odd ones"),
    ),
    *plant("pallas_kernels/mosaic/quantized_plan.py", PARTS,
        ("min(wanted, size // depth", "max(wanted, size // depth", "splits without work"),
    ),
]  # fmt: skip
