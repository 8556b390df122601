"""Bugs in how quantised checkpoints are read: the oracle's decoders must tell each of them."""

from tests.mutation.planting import Mutant, plant

HERE = "jax_engine/models/checkpoints/quantization"


def _tests(*names: str) -> tuple[str, ...]:
    return (*(f"tests/models/test_quantization_{name}.py" for name in names), "-mnot hypothesis")


GPTQ, COMPRESSED, FLOATS = _tests("gptq"), _tests("compressed_tensors"), _tests("floats")
TABLES, SOURCE = _tests("tables"), _tests("source")

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/models/checkpoints/safetensors_loader.py",
        SOURCE,
        ('"I32": np.dtype("<i4")', '"I32": np.dtype("<u4")', "codes lose their sign"),
        ("self._start = 8 + int(", "self._start = int(", "numbers begin in the header"),
    ),
    *plant(
        f"{HERE}/matrices.py",
        SOURCE,
        (
            "missing = -raw.shape[1] % bits",
            "missing = 0",
            "a stream must have whole eights of codes",
        ),
        ("if shift + bits > 8:", "if shift + bits > 9:", "a bit of the next byte is lost"),
        ("in_word = 32 // bits", "in_word = 32 / bits", "codes go on in the next word"),
    ),
    *plant(
        f"{HERE}/matrices.py",
        GPTQ,
        (
            "= -(scales * self.zeros())",
            "= scales * self.zeros()",
            "minimums of the wrong sign",
        ),
        (
            'order = np.argsort(found, kind="stable")',
            "order = np.argsort(-found)",
            "columns in an order that is not that of groups",
        ),
        (
            "return None if in_place else order, not equal",
            "return None if in_place else order, False",
            "groups of unequal sizes as rows of codes",
        ),
        (
            "groups = self.column_groups()",
            "groups = np.arange(self.shape[1]) // self.group",
            "numbers by the groups of another order",
        ),
    ),
    *plant(
        f"{HERE}/matrices.py",
        FLOATS,
        (
            "(scales.astype(np.float16).astype(np.float32) == scales).all()",
            "(abs(scales) < 65504).all()",
            "scales that float16 rounds",
        ),
    ),
    *plant(
        f"{HERE}/fp4.py",
        FLOATS,
        ("raw.min() >= 127 - 24", "raw.min() >= 127 - 126", "small powers of two as float16"),
    ),
    *plant(
        f"{HERE}/gptq.py",
        GPTQ,
        ("(2 - scheme.version)", "(1 - scheme.version)", "version 1 without its one"),
        ("        out ^= np.uint8(128)", "        out ^= np.uint8(0)", "8 bits are not signed"),
        (
            "return found.T - (middle if scheme.bits == 8 else 0)",
            "return found.T",
            "zero points of 8 bits beside signed codes",
        ),
        (
            "zeros=None if scheme.sym else",
            "zeros=None if not parts.has('.qzeros') else",
            "symmetric ones take what qzeros say",
        ),
        ("if rule.pattern.match(", "if rule.pattern.fullmatch(", "a pattern must be all of a name"),
        ("scheme = next(matching, base)", "scheme = [base, *matching][-1]", "the last rule counts"),
        ("found.min() < 0 or found.max() >= groups", "found.max() >= groups", "a negative group"),
        ("if found.max() > most:", "if found.max() > most + 1:", "zero points beyond the codes"),
    ),
    *plant(
        f"{HERE}/awq.py",
        TABLES,
        ("(0, 2, 4, 6, 1, 3, 5, 7)", "(0, 1, 2, 3, 4, 5, 6, 7)", "AWQ's nibbles in plain order"),
        ("if num_inputs % group:", "if num_inputs < group:", "a group that ends early"),
    ),
    *plant(
        f"{HERE}/compressed_tensors.py",
        COMPRESSED,
        (
            "return version >= FIRST_STREAM",
            "return True",
            "few codes are a stream, whatever the version",
        ),
        (
            "if stream != whole or 32 % bits == 0 or words == 1:",
            "if True:",
            "few codes need no version",
        ),
        ("if (found == -1).any():", "if False:", "an order that was never set"),
        (
            "out -= np.uint8(2 ** (bits - 1))",
            "out -= np.uint8(128)",
            "the middle of 8 bits for fewer",
        ),
        (
            "words = np.ascontiguousarray(parts.raw(ZERO).T)",
            "words = parts.raw(ZERO)",
            "zero points packed along groups",
        ),
    ),
    *plant(
        f"{HERE}/compressed_tensors.py",
        COMPRESSED,
        ("make = next(matching, linear)", "make = linear or next(matching)", "Linear comes first"),
        ("args.dynamic is not True or ", "", "static activations are rounded by rows"),
        ("found = group.format or fields.format", "found = fields.format", "one format for all"),
    ),
    *plant(
        f"{HERE}/fp8.py",
        FLOATS,
        (
            "np.repeat(found, rows, axis=0)[:num_outputs]",
            "np.resize(found, (num_outputs, found.shape[1]))",
            "blocks of rows take turns",
        ),
        (
            "scales.view(ml_dtypes.float8_e8m0fnu) if scales.dtype == np.uint8 else scales",
            "scales",
            "powers of two as whole numbers",
        ),
    ),
    *plant(
        f"{HERE}/fp4.py",
        FLOATS,
        ("each / of_matrix if divisor", "each / of_matrix if not divisor", "a factor divides"),
        (
            "in_float32(parts.raw(SCALES)[expert])",
            "in_float32(parts.raw(SCALES)[0])",
            "all experts have the first one's scales",
        ),
    ),
    *plant(
        f"{HERE}/bitsandbytes.py",
        TABLES,
        ("out[:, 0::2] = raw >> np.uint8(4)", "out[:, 0::2] = raw & np.uint8(15)", "low first"),
        ("np.float32(state.nested_offset or 0)", "np.float32(0)", "the offset is left out"),
        (
            "if num_inputs % state.blocksize or num_inputs % 2:",
            "if num_inputs % 2:",
            "rows that are no whole blocks as codes",
        ),
    ),
    *plant(
        f"{HERE}/squeezellm.py",
        TABLES,
        ("found[output, cols] += ", "found[output, cols] = ", "outliers replace, not add"),
        ("(counts < 0).any()", "False", "outliers in no order"),
    ),
    *plant(
        f"{HERE}/quantized_source.py",
        FLOATS,
        (
            'return first._replace(scale_dtype="float32")',
            "return first",
            "the kind of the first expert",
        ),
        ("here.T if self.turned else here", "here", "gpt-oss's numbers are not turned"),
    ),
    *plant(
        f"{HERE}/quantized_source.py",
        SOURCE,
        (
            'out["kind"] = self.kinds.index(kind)',
            'out["kind"] = 0',
            "all rows are of the first kind",
        ),
        ("if len(kinds) > MAX_KINDS:", "if False:", "kinds that an index cannot tell apart"),
    ),
    *plant(
        f"{HERE}/quantized_source.py",
        _tests("floats", "gptq"),
        ("if asked not in (None, found) and", "if False and", "another method than was asked for"),
        (
            '"modelopt_fp4" if is_fp4 else found',
            "found",
            "NVFP4 is not told from ModelOpt's FP8",
        ),
    ),
    *plant(
        f"{HERE}/method.py",
        FLOATS,
        (
            "if names.keys() == {WEIGHT} and",
            "if names.keys() >= {WEIGHT} and",
            "FP8's plain floats",
        ),
    ),
    *plant(
        f"{HERE}/method.py",
        _tests("gptq", "tables"),
        ("a >= 1 if b is None else a == b", "b is None or a == b", "sizes of zero"),
        ("if dtype not in dtypes:", "if False:", "parts of any dtype"),
    ),
]
