"""Bugs in the tool that quantises checkpoints."""

from tests.mutation.planting import Mutant, plant

HERE = "jax_engine/quantize"
FORMATS = ("tests/quantize/test_formats.py",)
GPTQ = ("tests/quantize/test_gptq.py",)
RESUMING = ("tests/quantize/test_resuming.py",)
SCALING = ("tests/quantize/test_scaling.py",)

MUTANTS: list[Mutant] = [
    *plant(
        f"{HERE}/rounding.py",
        FORMATS,
        (
            "np.rint(x / shared.scales[..., None])",
            "np.floor(x / shared.scales[..., None] + 0.5)",
            "halves are rounded up, not to even",
        ),
        (
            "rounded = scales.astype(self.dtype).astype(np.float32)",
            "rounded = scales.astype(np.float32)",
            "codes are found with a scale that is not stored",
        ),
        (
            "np.where(rounded == 0, np.float32(1), rounded)",
            "rounded",
            "numbers that are all zero are divided by zero",
        ),
    ),
    *plant(
        f"{HERE}/layouts.py",
        FORMATS,
        (
            '"qzeros": pack(coded.zeros.T - 1, 4),',
            '"qzeros": pack(coded.zeros.T, 4),',
            "version 1 with the zero points of version 2",
        ),
        (
            "coded.codes ^ np.uint8(128)",
            "coded.codes ^ np.uint8(127)",
            "codes of 8 bits are negated",
        ),
        (
            "[..., np.array(OUTPUT_OF)]",
            "[..., np.argsort(OUTPUT_OF)]",
            "AWQ's outputs in the opposite order",
        ),
    ),
    *plant(
        f"{HERE}/rounding.py",
        GPTQ,
        (
            "/ factor[column, column]",
            "/ factor[column, column] ** 2",
            "an error is weighed twice",
        ),
        (
            "left[:, stop:] -= errors @ factor[start:stop, stop:]",
            "pass",
            "later blocks do not make up for errors",
        ),
        (
            'np.argsort(-diagonal, kind="stable")',
            'np.argsort(diagonal, kind="stable")',
            "act-order begins with the inputs that matter least",
        ),
        (
            "placed[:, order] = codes",
            "placed[...] = codes",
            "codes stay in act-order",
        ),
    ),
    *plant(
        f"{HERE}/calibration.py",
        GPTQ,
        (
            "return x + residual",
            "return x",
            "the next layer does not read the residual stream",
        ),
    ),
    *plant(
        f"{HERE}/shards.py",
        RESUMING,
        (
            "and file_digest(path) == shard.sha256",
            "",
            "a damaged shard is kept",
        ),
        (
            "if found.get(name) != wanted.get(name):",
            "if False:",
            "shards of two requests are mixed",
        ),
    ),
    *plant(
        f"{HERE}/input_scales.py",
        SCALING,
        (
            "found += float(inputs.errors(numbers / scales - weight).sum())",
            "found += float(inputs.errors(numbers - weight * scales).sum())",
            "scales are compared by the error of scaled inputs that were not divided",
        ),
        (
            "new[worse] = old[worse]",
            "pass",
            "rows stay cut where that makes their error larger",
        ),
        (
            "better = errors < least",
            "better = errors > -1",
            "all ranges are halved",
        ),
    ),
    *plant(
        f"{HERE}/input_scales.py",
        SCALING,
        (
            "x**strength / w ** (1 - strength)",
            "x ** (1 - strength) / w**strength",
            "the strength is that of the weights",
        ),
        (
            "return smooth if errors[1] < errors[0] else ones",
            "return smooth",
            "inputs are smoothed where that makes the error larger",
        ),
        (
            "x = rounded_rows(inputs.rows / scales)",
            "x = inputs.rows / scales",
            "smoothing is judged without codes of activations",
        ),
    ),
    *plant(
        f"{HERE}/input_scales.py",
        SCALING,
        (
            "return np.where(usable, before, 1) / np.where(usable, after, np.float32(1))",
            "return scales",
            "a norm that is rounded does not undo the scales",
        ),
        (
            "if attention.num_heads != attention.num_kv_heads:",
            "if attention.num_heads < attention.num_kv_heads:",
            "values that query heads share are divided",
        ),
        (
            "shared = spec.parallel and spec.mlp_norm is None",
            "shared = False",
            "a norm that the MLP reads, too, is divided",
        ),
        (
            'for end in ("weight", "bias"):',
            'for end in ("weight",):',
            "biases are not divided",
        ),
    ),
    *plant(
        f"{HERE}/input_scales.py",
        SCALING,
        (
            "found[parameter] = inputs[parameter].divided(scales)",
            "pass",
            "codes are found for inputs that are not divided",
        ),
        (
            "return changed[name] if name in changed else model.files.raw(name)",
            "return model.files.raw(name)",
            "a matrix loses the scales of its inputs when its rows are divided",
        ),
        (
            "ignored = [name for name in matrices if name not in chosen]",
            "ignored: list[str] = []",
            "modules that are ignored are scaled",
        ),
    ),
]
