"""Bugs in how quantised checkpoints are read: the oracle's decoders must tell each of them."""

from tests.mutation.planting import Mutant, plant

HERE = "jax_engine/models/checkpoints/quantization"


def _tests(*names: str) -> tuple[str, ...]:
    return (*(f"tests/models/test_quantization_{name}.py" for name in names), "-mnot hypothesis")


GPTQ, COMPRESSED, FLOATS = _tests("gptq"), _tests("compressed_tensors"), _tests("floats")
TABLES, SOURCE = _tests("tables"), _tests("source")

MUTANTS: list[Mutant] = [
    *plant("jax_engine/models/checkpoints/stored_dtypes.py", SOURCE,
        ('"I32": np.dtype("<i4")', '"I32": np.dtype("<u4")', "codes lose their sign"),
    ),
    *plant(f"{HERE}/matrices.py", GPTQ,
        ("= -(scales * self.zeros())", "= scales * self.zeros()", "minimums of the wrong sign"),
        ('order = np.argsort(found, kind="stable")', "order = np.argsort(-found)",
         "columns in an order that is not that of groups"),
        ("groups = self.column_groups()", "groups = np.arange(self.shape[1]) // self.group",
         "numbers by the groups of another order"),
    ),
    *plant(f"{HERE}/matrices.py", FLOATS,
        ("(scales.astype(np.float16).astype(np.float32) == scales).all()",
         "(abs(scales) < 65504).all()", "scales that float16 rounds"),
    ),
    *plant(f"{HERE}/gptq.py", GPTQ,
        ("zeros=None if scheme.sym else", "zeros=None if not parts.has('.qzeros') else",
         "symmetric ones take what qzeros say"),
        ("if rule.pattern.match(", "if rule.pattern.fullmatch(", "a pattern must be all of a name"),
        ("scheme = next(matching, base)", "scheme = [base, *matching][-1]", "the last rule counts"),
        ("if found.max() > most:", "if found.max() > most + 1:", "zero points beyond the codes"),
    ),
    *plant(f"{HERE}/awq.py", TABLES,
        ("(0, 2, 4, 6, 1, 3, 5, 7)", "(0, 1, 2, 3, 4, 5, 6, 7)", "AWQ's nibbles in plain order"),
        ("if num_inputs % group:", "if num_inputs < group:", "a group that ends early"),
    ),
    *plant(f"{HERE}/compressed_tensors.py", COMPRESSED,
        ("if stream != whole or 32 % bits == 0 or words == 1:", "if True:",
         "few codes need no version"),
        ("words = np.ascontiguousarray(parts.raw(ZERO).T)", "words = parts.raw(ZERO)",
         "zero points packed along groups"),
    ),
    *plant(f"{HERE}/compressed_tensors.py", COMPRESSED,
        ("make = next(matching, linear)", "make = linear or next(matching)", "Linear comes first"),
    ),
    *plant(f"{HERE}/fp8.py", FLOATS,
        ("np.repeat(found, rows, axis=0)[:num_outputs]",
         "np.resize(found, (num_outputs, found.shape[1]))", "blocks of rows take turns"),
    ),
    *plant(f"{HERE}/fp4.py", FLOATS,
        ("in_float32(parts.raw(SCALES)[expert])", "in_float32(parts.raw(SCALES)[0])",
         "all experts have the first one's scales"),
    ),
    *plant(f"{HERE}/quantized_source.py", FLOATS,
        ('return first._replace(scale_dtype="float32")', "return first",
         "the kind of the first expert"),
    ),
    *plant(f"{HERE}/quantized_source.py", SOURCE,
        ('out["kind"] = self.kinds.index(kind)', 'out["kind"] = 0',
         "all rows are of the first kind"),
    ),
    *plant(f"{HERE}/method.py", _tests("gptq", "tables"),
        ("a >= 1 if b is None else a == b", "b is None or a == b", "sizes of zero"),
    ),
]  # fmt: skip
