"""Bugs in the kernels for a CPU that multiply codes."""

from tests.mutation.planting import Mutant, plant

LINEAR = ("tests/kernels/test_quantized_linear.py",)
PANELS = ("tests/kernels/test_quantized_panels.py",)
GROUPS = ("tests/kernels/test_quantized_groups.py",)
OTHER_PROCESSOR = ("tests/kernels/test_other_processor.py",)
FOLDER = "cpu_kernels/linear"

MUTANTS: list[Mutant] = [
    *plant(
        "cpu_kernels/simd/coded_words.py",
        LINEAR,
        ("(120 << 7) - 16", "(119 << 7) - 16", "E4M3 has another bias"),
        (
            "_shorts(len(SPECIAL))",
            "_shorts(len(SPECIAL) - 1)",
            "the last subnormal number is a normal one",
        ),
        ("_shorts(0x8000))", "_shorts(0))", "no E4M3 is negative"),
        ("for i in range(4):", "for i in (0, 2, 1, 3):", "pairs of columns change places"),
        ("4 * (i // 2) + 16 * (i % 2)", "4 * i", "even columns come before odd ones"),
    ),
    *plant(
        "cpu_kernels/simd/coded_words.py",
        OTHER_PROCESSOR,
        ("select(in_second, high, low)", "select(in_second, low, high)", "the table's halves"),
    ),
    *plant(  # a processor with AVX-512 meets these as an older one
        "cpu_kernels/simd/coded_words.py",
        (*LINEAR, *OTHER_PROCESSOR),
        (
            "builder.add(self.builder.and_(index, same(15)), self.first)",
            "builder.and_(index, same(15))",
            "whole numbers begin at 0",
        ),
    ),
    *plant(
        "cpu_kernels/simd/coded_micro_kernel.py",
        (*LINEAR, *OTHER_PROCESSOR),
        (
            "[line, builder.add(line, tile.apart)]",
            "[line, line]",
            "one row takes the same codes for two panels",
        ),
    ),
    *plant(
        "cpu_kernels/simd/coded_scales.py",
        (*LINEAR, *OTHER_PROCESSOR),
        (
            "start = self.builder.add(place, self.tile.apart) if panel else place",
            "start = place",
            "one row takes the same scales for two panels",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_tiles.py",
        (*LINEAR, *OTHER_PROCESSOR),
        (
            "if paired and place[1] == place[3]:",
            "if paired:",
            "one row is multiplied with panels of two kinds at once",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_kinds.py",
        (*LINEAR, *OTHER_PROCESSOR),
        ("if whole and not PERMUTES_16", "if not PERMUTES_16", "all tables are whole numbers"),
    ),
    *plant(
        "cpu_kernels/simd/coded_micro_kernel.py",
        LINEAR,
        ("builder.sub(tile.columns_of_x, first))", "tile.group)", "the last group is whole"),
        ("builder.mul(group, LONG(4)))", "LONG(0))", "the first group's sum of x for all"),
    ),
    *plant(
        "cpu_kernels/simd/coded_scales.py",
        LINEAR,
        ("LONG(OUTER.bit_length() - 1)", "LONG(OUTER.bit_length())", "blocks of 512 columns"),
        ("builder.add(tile.minimums, LONG(1))", "LONG(1)", "outer minimums are skipped over"),
        (
            "builder.fmul(inner, builder.load(scale))",
            "builder.load(scale)",
            "the outer scale alone",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_sums.py",
        LINEAR,
        ("range(LANES, size,", "range(0, size,", "16 columns of a group are added twice"),
        ("min(group, last)", "group", "the last of four groups has the next row's x"),
        (
            "min(group, columns - group * number)",
            "group",
            "a last group of fewer than four has the next row's x",
        ),
        ("at + 2 * step, group", "at + step, group", "the second group's sum for the third"),
        ("form[MINIMUMS] != 0", "form[MINIMUMS] == 0", "the groups of a kind without minimums"),
    ),
    *plant(
        "cpu_kernels/linear/chunks.py",
        GROUPS,
        (
            "        row = _end_of(call, group, row)\n    return row",
            "        row = _end_of(call, 0, 0)\n    return row",
            "only the first group's rows have sums",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_tiles.py",
        LINEAR,
        ("min(part.number, 1)", "0", "parts are not added"),
        (
            "column,\n        panel.scales",
            "0,\n        panel.scales",
            "the first block for each part",
        ),
        ("keep=n > FEW_ROWS", "keep=False", "nothing is kept for the other tiles"),
        ("4 * FIELDS * place[1]", "0", "all panels have the first kind"),
        ("+ 4 * part.first,", "+ 0 * part.first,", "the first part's sums of x for all"),
        ("VECTOR_BYTES * place[1]", "0", "the first kind's table for all"),
        (
            "chunk.columns - COLUMNS * number",
            "chunk.columns",
            "columns beyond the last are written",
        ),
    ),
    *plant(
        f"{FOLDER}/coded_weights.py",
        LINEAR,
        ("(0, padded(x.shape[1]) - x.shape[1])", "(0, 0)", "x ends before a line does"),
    ),
    *plant(
        f"{FOLDER}/coded_tiles.py",
        GROUPS,
        ("+ chunk.weight * call.panels.shape[1]", "", "the first group's weight for all"),
        ("PLACE_BYTES * chunk.panel", "0", "a pair is always the first"),
    ),
    *plant(
        f"{FOLDER}/product_kernel.py",
        GROUPS,
        ("products = memory + scratch(call)", "products = memory", "products over what is decoded"),
    ),
    *plant(
        f"{FOLDER}/coded_kinds.py",
        PANELS,
        ("shared if kind.minimums else group", "group", "groups with minimums of several sizes"),
        ("kind.outer == OUTER and OUTER % group == 0", "kind.outer > 0", "blocks of any size"),
    ),
    *plant(
        f"{FOLDER}/coded_panels.py",
        PANELS,
        ("columns // coded.group]", "columns // kind.group]", "scales of long groups"),
        ("found[lanes >= counts] = 0", "pass", "rows beyond the last have a scale"),
        ("if not np.array_equal(one, same, equal_nan=True)", "if False", "any scale is taken"),
    ),
    *plant(
        f"{FOLDER}/coded_panels.py",
        PANELS,
        ("column + EIGHT <= size", "column <= size", "codes of the next row"),
        ("_nibbles(codes >> 8) << 16", "_nibbles(codes) << 16", "even columns, twice"),
    ),
    *plant(
        f"{FOLDER}/coded_panels.py",
        PANELS,
        ("panels % parts * each", "0", "the first part for both"),
        ("starts + kind.outer_bytes(size)", "starts", "codes over the outer scales"),
    ),
    *plant(
        f"{FOLDER}/coded_panels.py",
        PANELS,
        ("at // 2 % 2", "at // 2", "the upper half of a byte"),
        ("start = kind.outer_bytes(size) +", "start =", "outer scales are read as codes"),
    ),
]
