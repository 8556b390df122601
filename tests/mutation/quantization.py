"""Wrong weight formats: hand-made examples, and goldens of the packages, must tell each of them."""

from tests.mutation.planting import Mutant, plant

HERE = "reference/quantization"


def _tests(*names: str) -> tuple[str, ...]:
    return (*(f"tests/reference/test_quantization_{name}.py" for name in names), "-mnot hypothesis")


MUTANTS: list[Mutant] = [
    *plant(
        f"{HERE}/bits.py",
        _tests("steps", "gguf"),
        (
            'stream = np.unpackbits(raw, axis=-1, bitorder="little")',
            'stream = np.unpackbits(raw, axis=-1, bitorder="big")',
            "a stream begins with the highest bit",
        ),
        (
            "missing = -stream.shape[-1] % (8 * word.itemsize)",
            "missing = -stream.shape[-1] % 8",
            "the last word is not filled up",
        ),
        (
            "(data[..., None, :] >> shifts) & np.uint8(2**bits - 1)",
            "data[..., None, :] >> shifts",
            "the planes above are not masked",
        ),
    ),
    *plant(
        f"{HERE}/steps.py",
        _tests("steps"),
        (
            "scales = _stored(2 * extremes / np.float32(2**bits - 1), dtype)",
            "scales = _stored(2 * extremes / np.float32(2**bits), dtype)",
            "symmetric steps too small",
        ),
        (
            "np.minimum(x.min(axis=-1), 0)",
            "x.min(axis=-1)",
            "zero is beyond the steps of positive numbers",
        ),
        (
            "np.rint(x / scales.astype(np.float32)[..., None])",
            "np.floor(x / scales.astype(np.float32)[..., None] + np.float32(0.5))",
            "half a step is rounded up",
        ),
        (
            "np.where(rounded == 0, np.ones_like(rounded), rounded)",
            "rounded",
            "numbers that are all zero have the scale zero",
        ),
        ("axis=0)[: shape[0]]", "axis=0)", "blocks reach beyond the last row"),
    ),
    *plant(
        f"{HERE}/gguf_blocks.py",
        _tests("gguf"),
        ('"Q4_0": Kind(4, 8)', '"Q4_0": Kind(4, 7)', "Q4_0 with the zero of symmetric nibbles"),
        (
            "unpack_planes(rest[:, -16:], 4).reshape(-1, BLOCK)",
            "unpack_planes(rest[:, -16:], 4).transpose(0, 2, 1).reshape(-1, BLOCK)",
            "two nibbles of a byte are neighbours",
        ),
        (
            'np.unpackbits(rest[:, :4], axis=-1, bitorder="little")',
            'np.unpackbits(rest[:, :4], axis=-1, bitorder="big")',
            "fifth bits from the highest",
        ),
        (
            "return Fields(rest ^ np.uint8(128), d, m)",
            "return Fields(rest, d, m)",
            "signed bytes of Q8_0 are read as unsigned ones",
        ),
        ("[-127, -104, -83, -65,", "[-127, -104, -84, -65,", "a wrong number in IQ4_NL's table"),
        (
            "scale = furthest / np.float32(-kind.offset)",
            "scale = np.abs(furthest) / np.float32(kind.offset)",
            "the number furthest from zero has no code",
        ),
        (
            "codes = np.rint((x - lowest) * _inverse(scale)) +",
            "codes = np.trunc((x - lowest) * _inverse(scale)) +",
            "codes are cut off",
        ),
    ),
    *plant(
        f"{HERE}/gguf_k.py",
        _tests("gguf"),
        (
            "(small & 15).astype(np.int16), (small >> 4).astype(np.int16)",
            "(small >> 4).astype(np.int16), (small & 15).astype(np.int16)",
            "Q2_K's scales and minimums change places",
        ),
        (
            "_planes(low, 2, 32) | _planes(high, 1, 32) << np.uint8(2)",
            "_planes(low, 2, 32) | (_planes(high, 1, 32) ^ np.uint8(1)) << np.uint8(2)",
            "Q3_K's third bit is turned round",
        ),
        (
            "codes = _planes(low, 4, 64) |",
            "codes = _planes(low, 4, 32) |",
            "Q6_K's low bits in planes of 32",
        ),
        (
            "return np.asarray((low | high << np.uint8(4)).astype(np.int16) - 32)",
            "return np.asarray((low | high << np.uint8(4)).astype(np.int16))",
            "Q3_K's scales have no sign",
        ),
        (
            "last = unpack_planes(small[:, 8:], 4) | upper",
            "last = unpack_planes(small[:, 8:], 4)",
            "Q4_K's last scales lose their upper bits",
        ),
        (
            "weights = weights - least[..., None]",
            "weights = weights + least[..., None]",
            "minimum added",
        ),
        (
            "codes = (np.rint(steps) +",
            "codes = (np.floor(steps + np.float32(0.5)) +",
            "half a step is rounded up",
        ),
        (
            "furthest / np.float32(low or high)",
            "furthest / np.float32(high)",
            "the largest scale of Q3_K is not exact",
        ),
    ),
    *plant(
        f"{HERE}/gguf.py",
        _tests("gguf"),
        ("if rows.shape[-1] % size:", "if False:", "rows may end within a block"),
    ),
    *plant(
        f"{HERE}/gptq.py",
        _tests("gptq"),
        (
            "return codes, zeros + 1 if version == 1 else zeros",
            "return codes, zeros",
            "version 1 is read as version 2",
        ),
        (
            "stored = (zeros - 1 if version == 1 else zeros)",
            "stored = (zeros - 1)",
            "version 2 is written as version 1",
        ),
        (
            "group = tensors.g_idx",
            "group = np.sort(tensors.g_idx)",
            "act-order is forgotten",
        ),
        (
            "zeros = np.maximum(zeros, 1) if version == 1 else zeros",
            "zeros = zeros",
            "a zero point of 0 wraps around",
        ),
    ),
    *plant(
        f"{HERE}/awq.py",
        _tests("awq"),
        (
            "codes[..., ORDER] = nibbles",
            "codes = nibbles[..., ORDER]",
            "the order the other way round",
        ),
        (
            "zeros = unpack(tensors.qzeros).astype(np.float32)",
            "zeros = unpack(tensors.qzeros).astype(np.float32) + 1",
            "zero points less one, as GPTQ has them",
        ),
        (
            "(len(tensors.qweight) // len(tensors.scales))",
            "len(tensors.scales)",
            "groups as long as there are many",
        ),
    ),
    *plant(
        f"{HERE}/compressed_tensors.py",
        _tests("compressed_tensors"),
        (
            "signed = codes[:, :count].astype(np.int16) - 2 ** (bits - 1)",
            "signed = codes[:, :count].astype(np.int16) - 2 ** (bits - 1) + 1",
            "codes from the wrong middle",
        ),
        (
            "if words.shape[1] == -(-count * bits // 32):",
            "if True:",
            "words of whole codes are read as a stream",
        ),
        (
            "None if zeros is None else unpack(zeros.T, bits, num_outputs).T",
            "None if zeros is None else unpack(zeros, bits, zeros.shape[1])",
            "zero points packed along the groups",
        ),
        (
            "if g_idx is None else g_idx",
            "if True else g_idx",
            "groups by activation order are forgotten",
        ),
        (
            "return signed, scales, None if symmetric else (zeros - middle).astype(np.int8)",
            "return signed, scales, None if symmetric else zeros.astype(np.int8)",
            "zero points keep the middle that codes have lost",
        ),
    ),
    *plant(
        f"{HERE}/small_floats.py",
        _tests("small_floats"),
        ("np.where(exponent > 0, 2**mantissa_bits, 0)", "2**mantissa_bits", "no subnormal numbers"),
        ("E4M3[[127, 255]] = np.nan", "E4M3[127] = np.nan", "the negative NaN is a number"),
        ("np.arange(-127, 128)", "np.arange(-126, 129)", "E8M0 with another bias"),
        ("& (above % 2 == 0)", "& (above % 2 == 1)", "ties go to odd codes"),
        (
            "np.minimum(below + 1, len(positive) - 1)",
            "below",
            "numbers are rounded towards zero",
        ),
    ),
    *plant(
        f"{HERE}/fp8.py",
        _tests("fp8"),
        (
            "E4M3[tensors.weight] * spread(",
            "E4M3[tensors.weight] / spread(",
            "the scale that is called inverse divides",
        ),
        (
            "E8M0[tensors.scale] if tensors.scale.dtype == np.uint8 else tensors.scale",
            "tensors.scale.astype(np.float32)",
            "powers of two are read as numbers",
        ),
        (
            "LARGEST = np.float32(448)",
            "LARGEST = np.float32(240)",
            "E4M3 with infinities ends at 240",
        ),
    ),
    *plant(
        f"{HERE}/mxfp4.py",
        _tests("fp4"),
        ("LARGEST_EXPONENT = 2", "LARGEST_EXPONENT = 3", "blocks reach to 12, and numbers to 6"),
        (".clip(0, 254)", ".clip(1, 254)", "the smallest scale is never used"),
    ),
    *plant(
        f"{HERE}/nvfp4.py",
        _tests("fp4"),
        (
            "scales = E4M3[tensors.weight_scale] / tensors.weight_global_scale",
            "scales = E4M3[tensors.weight_scale] * tensors.weight_global_scale",
            "the global scale multiplies",
        ),
        (
            "actual = (E4M3[scales] / global_scale)",
            "actual = (largest / LARGEST_E2M1)",
            "codes by a scale that is not stored",
        ),
    ),
    *plant(
        f"{HERE}/nf4.py",
        _tests("nf4"),
        (
            "[tensors.weight >> 4, tensors.weight & np.uint8(15)]",
            "[tensors.weight & np.uint8(15), tensors.weight >> 4]",
            "low nibbles come first",
        ),
        (
            "NESTED_BLOCK) + nested.offset",
            "NESTED_BLOCK)",
            "the offset of double quantisation is lost",
        ),
        ("BLOCK, NESTED_BLOCK = 64, 256", "BLOCK, NESTED_BLOCK = 64, 64", "nested blocks of 64"),
        ("0.44070982933044434", "0.44071", "a number of NF4, shortened"),
        ("constant_values=7", "constant_values=0", "the code behind the last one is -1"),
    ),
    *plant(
        f"{HERE}/squeezellm.py",
        _tests("squeezellm"),
        (
            "weights[output, tensors.cols] += tensors.vals",
            "weights[output, tensors.cols] = tensors.vals",
            "outliers replace the table's number",
        ),
        (
            "np.diff(tensors.rows)",
            "np.diff(tensors.rows)[::-1]",
            "outputs have each other's outliers",
        ),
        (
            "np.put_along_axis(dense, cols, 0.0, axis=1)",
            "pass",
            "the code in an outlier's place is not that near zero",
        ),
        (
            "np.where(sizes > 0, sums / np.maximum(sizes, 1), middles)",
            "sums / np.maximum(sizes, 1)",
            "empty clusters go to zero",
        ),
    ),
    *plant(
        f"{HERE}/smoothquant.py",
        _tests("smoothquant"),
        (
            "x.astype(np.int32) @ weight.astype(np.int32)",
            "x.astype(np.int16) @ weight.astype(np.int16)",
            "sums in 16 bits",
        ),
        ("largest_w ** (1 - alpha)", "largest_w**alpha", "alpha for both sides"),
        (
            "np.where(largest >= LEAST, largest / LARGEST, np.float32(1))",
            "np.full_like(largest, largest.max() / LARGEST)",
            "one scale for all tokens",
        ),
        ("np.where(either_is_zero, 1, m)", "np.where(m == 0, 1, m)", "an unused input is scaled"),
    ),
]
