"""Bugs in the tool that quantises checkpoints."""

from tests.mutation.planting import Mutant, plant

HERE = "jax_engine/quantize"
FORMATS = ("tests/quantize/test_formats.py",)
GPTQ = ("tests/quantize/test_gptq.py",)
SCALING = ("tests/quantize/test_scaling.py",)

MUTANTS: list[Mutant] = [
    *plant(f"{HERE}/rounding.py", FORMATS,
        ("np.rint(x / shared.scales[..., None])", "np.floor(x / shared.scales[..., None] + 0.5)",
         "halves are rounded up, not to even"),
        ("rounded = scales.astype(self.dtype).astype(np.float32)",
         "rounded = scales.astype(np.float32)", "codes are found with a scale that is not stored"),
    ),
    *plant(f"{HERE}/layouts.py", FORMATS,
        ("[..., np.array(OUTPUT_OF)]", "[..., np.argsort(OUTPUT_OF)]",
         "AWQ's outputs in the opposite order"),
    ),
    *plant(f"{HERE}/rounding.py", GPTQ,
        ("/ factor[column, column]", "/ factor[column, column] ** 2", "an error is weighed twice"),
        ('np.argsort(-diagonal, kind="stable")', 'np.argsort(diagonal, kind="stable")',
         "act-order begins with the inputs that matter least"),
        ("placed[:, order] = codes", "placed[...] = codes", "codes stay in act-order"),
    ),
    *plant(f"{HERE}/input_scales.py", SCALING,
        ("better = errors < least", "better = errors > -1", "all ranges are halved"),
    ),
    *plant(f"{HERE}/input_scales.py", SCALING,
        ("x = rounded_rows(inputs.rows / scales)", "x = inputs.rows / scales",
         "smoothing is judged without codes of activations"),
    ),
    *plant(f"{HERE}/input_scales.py", SCALING,
        ("return np.where(usable, before, 1) / np.where(usable, after, np.float32(1))",
         "return scales", "a norm that is rounded does not undo the scales"),
        ('for end in ("weight", "bias"):', 'for end in ("weight",):', "biases are not divided"),
    ),
    *plant(f"{HERE}/input_scales.py", SCALING,
        ("ignored = [name for name in matrices if name not in chosen]", "ignored: list[str] = []",
         "modules that are ignored are scaled"),
    ),
]  # fmt: skip
