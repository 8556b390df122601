"""Bugs in the kernels for a CPU."""

from tests.mutation.planting import Mutant, plant

ATTENTION = ("tests/kernels", "--kernel=tests.kernels.kernel:numba")
LINEAR = (
    "tests/kernels/test_linear.py",
    "tests/kernels/test_linear_in_leaves.py",
)
GATED = ("tests/kernels/test_gated_linear.py",)
GROUPED = ("tests/kernels/test_grouped_linear.py",)
BITS = ("tests/kernels/test_numba.py", "-k i47 or anywhere")
DRAFTS = ("tests/kernels/test_drafts.py",)
DRAW = ("tests/kernels/test_draw.py",)
OTHER_PROCESSOR = ("tests/kernels/test_other_processor.py",)
FOLDER = "cpu_kernels"

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/attention/plan.py",
        BITS,
        (
            "work.prompt_lens[seq] - first_position(work, seq)",
            "work.prompt_lens[seq] - 0 * seq",
            "tokens that are computed again are a prompt's",
        ),
    ),
    *plant(
        f"{FOLDER}/attention/plan.py",
        DRAFTS,
        ("+ bunch * room", "+ 0 * room", "a sequence's decodes share their partial results"),
    ),
    *plant(
        f"{FOLDER}/attention/decode.py",
        DRAFTS,
        (
            "first_visible(work, own) - start, min(",
            "first_visible(work, item.position) - start, min(",
            "all drafts have the first one's window",
        ),
        ("min(stop, own + 1) - start", "stop - start", "drafts see those after them"),
        (
            "low = max(first_visible(work, own) - position, 0)",
            "low = 0 * own",
            "a window's weight of 0 times a value that is no number",
        ),
        (
            "low = min(max(first_visible(work, item.position + item.queries - 1), start), stop)",
            "low = start",
            "a weight of 0 times an earlier value that is no number",
        ),
        (
            "high = min(max(item.position + 1, low), stop)",
            "high = stop",
            "a weight of 0 times a later value that is no number",
        ),
    ),
    *plant(
        f"{FOLDER}/sampling/softmax_sums.py",
        ("tests/kernels/test_softmax.py",),
        (
            "spread(0.0), spread(width - 1)",
            "spread(0.0), spread(width)",
            "zeros behind a row count",
        ),
        ("top if np.isfinite(top) else np.float32(0)", "top", "a row of nothing has no sum"),
    ),
    *plant(
        f"{FOLDER}/attention/decode.py",
        ATTENTION,
        (
            "PART + PART, item.position + item.queries)",
            "PART + PART, item.position + item.queries - 1)",
            "a token misses itself",
        ),
        ("max(part * PART, low)", "part * PART + 0 * low", "a window begins at a part's start"),
        ("== last - first:", "== 0:", "the first to finish merges"),
        (
            "first_part(work, position), position // PART + 1",
            "first_part(work, position), position // PART",
            "some parts are merged",
        ),
    ),
    *plant(
        f"{FOLDER}/simd/products.py",
        ATTENTION,
        (
            "right, builder.mul(width, LONG(item)), keys)",
            "right, builder.mul(width, LONG(4)), keys)",
            "keys of bfloat16 as far apart as those of float32",
        ),
        ("done += 2", "done += 1", "columns of values are added twice"),
    ),
    *plant(
        f"{FOLDER}/attention/prefill.py",
        ATTENTION,
        ("position + 1 - start, slope_of", "position - start, slope_of", "a token misses itself"),
        ("keep = shrink(old, top)", "keep = shrink(top, top)", "old chunks are not rescaled"),
        (
            "(row + used - 1) // group + 1) - start",
            "row // group + 1) - start",
            "rows see too little",
        ),
    ),
    *plant(
        f"{FOLDER}/attention/plan.py",
        ATTENTION,
        ("position - work.window + 1)", "position - work.window)", "window one long"),
    ),
    *plant(
        f"{FOLDER}/attention/pages.py",
        ATTENTION,
        ("work.layer * work.kv", "work.layer", "another layer's cache"),
    ),
    *plant(
        f"{FOLDER}/attention/softmax.py",
        ATTENTION,
        ("mul(score, spread(1 / soft_cap))", "score", "the soft cap"),
    ),
    *plant(
        f"{FOLDER}/linear/chunks.py",
        LINEAR,
        ("(call.out.shape[0] - row)", "0", "padding is kept"),
        ("layer * groups + share.group", "share.group", "always the first layer"),
        (
            "out.address + share.row * out_step",
            "out.address",
            "one place for all chunks of x",
        ),
    ),
    *plant(
        f"{FOLDER}/linear/weights.py",
        LINEAR,
        ("(0, x.shape[1] % 2)", "(0, -(x.shape[1] % 2))", "the last of an odd number is dropped"),
    ),
    *plant(
        f"{FOLDER}/linear/tiles.py",
        LINEAR,
        ("(chunk.tokens + ROWS - 1) // ROWS", "chunk.tokens // ROWS", "rows left over"),
        ("+ step * at", "+ 0 * at", "the first part of x is taken for all"),
        ("sums.columns, more,", "sums.columns, 0,", "parts are not added"),
        ("rows - 1, right", "rows, right", "a row beyond is written"),
        ("chunk.columns - COLUMNS * panel", "chunk.columns", "columns beyond the last are written"),
    ),
    *plant(
        f"{FOLDER}/linear/weights.py",
        OTHER_PROCESSOR,
        (
            "return lax.reduce_precision(x.astype(jnp.float32), exponent_bits=8, mantissa_bits=7)",
            "return x.astype(jnp.float32)",
            "x is not rounded",
        ),
    ),
    *plant(
        f"{FOLDER}/simd/words.py",
        OTHER_PROCESSOR,
        ("for half in (even, odd)", "for half in (even, even)", "half of the numbers, twice"),
    ),
    *plant(
        f"{FOLDER}/linear/panels.py",
        LINEAR,
        ("rows - 1 - start", "rows - start", "a row beyond the last is packed"),
        ("(part * rows + start)", "start", "the first layer for all"),
        ("rows % COLUMNS]", "rows % COLUMNS - 1]", "the row beside"),
    ),
    *plant(
        f"{FOLDER}/simd/packing.py",
        LINEAR,
        ('place, INTS, "i32", count, 4', 'place, INTS, "i32", at, 4', "a rest is not masked"),
    ),
    *plant(
        f"{FOLDER}/simd/micro_kernel.py",
        LINEAR,
        ("LONG(v * LANES)", "LONG(0)", "columns beyond the last are written"),
    ),
    *plant(
        f"{FOLDER}/simd/vectors.py",
        LINEAR,
        ('_signed("<", ir.Constant', '_signed("<=", ir.Constant', "one number too many of a rest"),
    ),
    *plant(
        f"{FOLDER}/kv_write.py",
        ("tests/kernels/test_kv_write.py",),
        ("(layer * shape[1] + which)", "(layer + which)", "another layer's cache"),
        ("0 <= slot < num_slots", "slot < num_slots", "padding is written"),
        ("for token in range(start,", "for token in range(start + 1,", "a range's first token"),
    ),
    *plant(
        f"{FOLDER}/linear/product_kernel.py",
        GATED,
        ("chunk.panel + PARTS * pair", "chunk.panel + pair", "a pair begins with up"),
    ),
    *plant(
        f"{FOLDER}/linear/gates.py",
        GATED,
        ("added + 4 * width", "added", "the gate's bias for up"),
        ("4 * (first + at)", "4 * at", "a chunk's first biases for all its panels"),
        ("+ row * chunk.out_step", "", "one place for all rows"),
    ),
    *plant(
        f"{FOLDER}/linear/chunks.py",
        GATED,
        ("item_bytes(out.dtype) * column,", "column,", "one place for some chunks of panels"),
    ),
    *plant(
        f"{FOLDER}/linear/chunks.py",
        GROUPED,
        ("layer * groups + share.group", "layer * groups", "the first group's weight for all"),
        ("chunks <= number < chunks", "number < chunks", "only the last group's rows"),
        ("count, number - chunks", "count, number", "a group begins in the middle"),
        ("place // each, of_x)", "0, of_x)", "a group's first rows for all its chunks"),
    ),
    *plant(
        f"{FOLDER}/linear/gates.py",
        GROUPED,
        (
            "PARTS * call.out.shape[1] * share.group",
            "call.out.shape[1] * share.group",
            "half of another group's biases",
        ),
    ),
    *plant(
        f"{FOLDER}/linear/gates.py",
        GROUPED,
        ("where_less(x, zero, small, one)", "one", "a sigmoid of what is negative"),
        ("larger(spread(-LIMIT), up)", "up", "up has no lower bound"),
        ("tail, sub(one, tail)", "tail, tail", "the normal distribution falls again"),
    ),
    *plant(
        f"{FOLDER}/linear/panels.py",
        GATED,
        ("panel // parts * COLUMNS", "panel * COLUMNS", "panels do not take turns"),
        ("layer * parts + panel % parts", "layer * parts", "the gate is taken for up"),
    ),
    *plant(
        f"{FOLDER}/norms.py",
        ("tests/kernels/test_norms.py",),
        ("if row < wanted:", "if row <= wanted:", "a row of padding"),
        ("np.sqrt(square + call.eps.float32[0])", "np.sqrt(square)", "eps is forgotten"),
        ("add(number, load_some(bias", "sub(number, load_some(bias", "bias subtracted"),
        ("head = row % _heads(call)", "head = row * 0", "all heads have the first one's scale"),
        (
            "count_from(at), last, apart, zero",
            "zero, zero, apart, zero",
            "the rest of a vector counts",
        ),
        (
            "square = _variance(source, start, width, mean)",
            "square = square - mean * mean",
            "the mean of squares minus the square of the mean",
        ),
        ("mean = np.float32(0)", "mean = mean * np.float32(1)", "RMSNorm around the mean"),
        (
            "            number = widen_some(kind, start + item * at, count)\n",
            "",
            "the sum's statistics before it is rounded",
        ),
        (
            "return kind, call.summed.address + item_bytes(kind) * width * row",
            "return FLOAT32, call.x.address + 4 * width * row",
            "the norm of x without its residual",
        ),
    ),
    *plant(
        f"{FOLDER}/sampling/draw.py",
        DRAW,
        (
            "np.float32(1) / call.temperature.float32[row]",
            "call.temperature.float32[row]",
            "temperature inverted",
        ),
        ("threshold(numbers, weights, size, top_p * mass), least)", "least, least)", "top-p"),
        (
            "weight_above(numbers, weights, size, least)",
            "weight_above(numbers, weights, size, -np.inf)",
            "top-p counts what top-k left out",
        ),
        (
            "before, last = before + weight, i",
            "before, last = weight, i",
            "the tokens before are forgotten",
        ),
        ("where_less(share, weight, weight, zero)", "weight", "the mass of what min-p cuts"),
        ("BLOCK), BLOCK, -np.inf)", "BLOCK), BLOCK, 0.0)", "tokens behind the vocabulary"),
        (
            "max(threshold(numbers, weights, size, np.float32(k)), least)",
            "threshold(numbers, weights, size, np.float32(k))",
            "top-n-sigma is forgotten with top-k",
        ),
    ),
    *plant(
        f"{FOLDER}/sampling/thresholds.py",
        DRAW,
        ("where_less(least, number, one, zero)", "one", "the padding of a row counts"),
        ("spread(total(sums) / count), zero", "zero, zero", "deviations from 0"),
        ("np.sqrt(total(squares) / count)", "total(squares) / count", "the variance"),
    ),
    *plant(
        f"{FOLDER}/sampling/thresholds.py",
        DRAW,
        ("if mass >= wanted:", "if mass > wanted:", "ties with the boundary token go"),
        ("add(add(a, b), add(c, d))", "add(add(a, b), add(c, c))", "a quarter is counted twice"),
        (
            "if key & _SIGN else key ^ _ALL",
            "if key & _SIGN else key",
            "negative logits are out of order",
        ),
    ),
    *plant(
        f"{FOLDER}/sampling/draw.py",
        DRAW,
        ("if peak > best:", "if peak >= best:", "the last of equal ones"),
        ("spread(size - 1)", "spread(size)", "a zero behind the vocabulary"),
    ),
    *plant(
        f"{FOLDER}/zeros.py",
        ("tests/kernels/test_zeros.py",),
        ("clear(last, stop - last)", "clear(last, 0)", "the end keeps what it had"),
        ("-(-start // PAGE) * PAGE", "start // PAGE * PAGE", "a page that others use is cleared"),
    ),
]
