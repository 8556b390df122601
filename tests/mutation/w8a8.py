"""Bugs in W8A8: its kernels for a CPU, and its weight formats."""

from tests.mutation.planting import Mutant, plant

LINEAR = ("tests/kernels/test_w8a8.py",)
GATED = ("tests/kernels/test_w8a8_gated.py",)
FORMATS = ("tests/weights/test_w8a8.py",)
ASKED = ("tests/models/test_asked_w8a8.py",)
KERNELS, SIMD = "cpu_kernels/linear", "cpu_kernels/simd"

MUTANTS: list[Mutant] = [
    *plant(
        f"{KERNELS}/w8a8_rows.py",
        LINEAR,
        ("largest / np.float32(LARGEST)", "largest / np.float32(ZERO)", "128 steps instead of 127"),
        ("largest < np.float32(LEAST)", "largest < np.float32(0)", "rows of zeros have no scale"),
        ("widen_some(kind, place, width - at)", "widen(kind, place)", "the next row's numbers too"),
        ("max(count, call.ends.int32[group])", "call.ends.int32[group]", "the last group's rows"),
        ("sums = add(sums, sub(shifted, rounder))", "sums = sub(shifted, rounder)", "a sum's end"),
        ("total(sums)) if finite else 0", "total(sums))", "infinity is a sum of codes"),
    ),
    *plant(
        f"{SIMD}/narrow.py",
        LINEAR,
        ('icmp_signed(">", a, b)', 'icmp_signed("<", a, b)', "the smallest magnitude"),
        ("ROUNDER = 12582912.0", "ROUNDER = 8388608.0", "codes below 0 lose half of a step"),
    ),
    *plant(
        f"{SIMD}/byte_words.py",
        LINEAR,
        ("INT(24 - 8 * byte)", "INT(8 * byte)", "bytes of x in the other order"),
        ("same(0xFF)", "same(0x7F)", "bytes without their highest bit"),
        ("builder.ashr(half, eight)", "builder.lshr(half, eight)", "pairs of x without a sign"),
        ("total, b, a)", "total, a, b)", "x without a sign, weights with one"),
        ("list(range(part * size, (part + 1) * size))", "list(range(size))", "half of a vector"),
    ),
    *plant(
        f"{SIMD}/byte_kernel.py",
        LINEAR,
        ("LONG(BYTES * v)", "LONG(0)", "the first 16 columns' scales for all"),
        ("builder.sitofp(total", "builder.uitofp(total", "sums without a sign"),
    ),
    *plant(
        f"{KERNELS}/w8a8_weights.py",
        LINEAR,
        ("scales.panels + 4 * COLUMNS * panel", "scales.panels", "the first panel's scales"),
        ("scales.firsts + 4 * token", "scales.firsts", "the first tile's sums of x"),
        ("scales.rows + 4 * token", "scales.rows", "the first tile's scales"),
        ("call.firsts.address + 4 * chunk.row", "call.firsts.address", "a chunk's sums of x"),
        ("+ 4 * COLUMNS * chunk.panel", "", "the first group's scales for all"),
        ("(chunk.tokens + ROWS - 1) // ROWS", "chunk.tokens // ROWS", "rows left over"),
    ),
    *plant(
        f"{KERNELS}/w8a8_weights.py",
        LINEAR,
        ("codes.view(np.uint8) ^ np.uint8(ZERO)", "codes.view(np.uint8)", "weights with a sign"),
    ),
    *plant(
        f"{KERNELS}/w8a8_weights.py",
        GATED,
        ("panels.swapaxes(-3, -2)", "panels", "scales of gate and up do not alternate"),
    ),
    *plant(
        "jax_engine/weights/w8a8.py",
        FORMATS,
        ("np.rint(wide", "np.trunc(wide", "numbers are cut off"),
        (
            "np.where(largest >= LEAST, largest / np.float32(LARGEST), np.float32(1))",
            "largest / np.float32(LARGEST)",
            "rows of zeros have no scale",
        ),
        ("jnp.clip(ids, 0, weight.matrix.shape[-2] - 1)", "ids", "the scale of a row beyond"),
        (" and kind.activations == INT8", "", "activations that are not to be rounded"),
        ("LEAST = 2.0**-118", "LEAST = 2.0**-120", "the formats differ on tiny rows"),
        ("matrix.shape[-1] > MOST", "matrix.shape[-1] > MOST + 1", "a row too long"),
    ),
    *plant(
        "jax_engine/weights/w8a8.py",
        ASKED,
        ("has_row_scales(kind, matrix.shape[-1]) for", "kind for", "scales of groups are lost"),
        ("parts is not None and all", "parts is None and all", "codes are rounded anew"),
    ),
    *plant(
        "jax_engine/models/leaves.py",
        ASKED,
        ("leaf.format is not None and ", "", "norms are rounded"),
        (' and "shared" not in part', "", "the shared expert stays in numbers"),
        ("axes = 4 if", "axes = 3 if", "experts stay in numbers, and their choice is rounded"),
    ),
    *plant(
        "jax_engine/weights/w8a8.py",
        FORMATS,
        (
            "jnp.where(is_zero, one, jnp.float32(LARGEST))",
            "jnp.float32(LARGEST)",
            "XLA multiplies by the reciprocal of 127",
        ),
        (
            "jnp.where(sizes <= largest, scales, one)",
            "scales",
            "XLA multiplies by the reciprocal of a scale",
        ),
        ("jnp.round(quotients)", "jnp.trunc(quotients)", "numbers are cut off"),
        (
            "* steps * bias_of_rows(scales, starts, len(x))",
            "* steps * scales[0]",
            "the first expert's scales",
        ),
        ("steps * scales[:, None]", "steps * scales[:1, None]", "the first matrix's scales"),
        (
            "lax.dynamic_index_in_dim(scales, layer, keepdims=False)",
            "scales[0]",
            "the first layer's scales",
        ),
    ),
]
