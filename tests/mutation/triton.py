"""Bugs in the kernels for Ampere and newer GPUs."""

from tests.mutation.planting import Mutant, plant

FOLDER = "pallas_kernels/triton"
FILE = "tests/kernels/test_triton.py"
SPLITS = (FILE, "-k=splits_share_out or number_of_splits")
TILES = (FILE, "-k=tile or parts_cover or refused")
QUANTIZED = (FILE, "-k=quantised or fp8")
BORDERS = ("tests/kernels/test_borders.py", "-k=triton-1")

MUTANTS: list[Mutant] = [
    *plant(
        f"{FOLDER}/splits.py",
        SPLITS,
        (
            "context_len + (block_kv - 1), block_kv)",
            "context_len, block_kv)",
            "the last step is lost",
        ),
        ("end - first + (splits - 1), splits)", "end - first, splits)", "the rest of a division"),
        (
            "jnp.maximum(context_len - window, 0)",
            "context_len",
            "a window shows the last block alone",
        ),
        ("min(wanted, useful, MOST_SPLITS)", "min(wanted, MOST_SPLITS)", "splits without work"),
        ("num_sms // programs, LEAST", "num_sms, LEAST", "splits do not count the programs"),
    ),
    *plant(
        f"{FOLDER}/heads.py",
        TILES,
        ("begin += size", "begin += rest", "a head of 80 keeps its first 64 numbers"),
        ("if 8 * rest < 7 * size:", "if 8 * rest <= 8 * size:", "parts of half the size only"),
    ),
    *plant(
        f"{FOLDER}/prefill.py",
        TILES,
        ("tile_queries // queries)", "1)", "the rest of a tile's queries"),
    ),
    *plant(
        f"{FOLDER}/attention.py",
        TILES,
        ("1 << (each.bit_length() - 1)", "each", "tiles are no power of two"),
        (
            "2**31 < kv_cache.size <= 2**32",
            "2**31 <= kv_cache.size < 2**32",
            "offsets turn negative",
        ),
    ),
    *plant(
        f"{FOLDER}/quantized.py",
        QUANTIZED,
        ("* 256.0", "* 128.0", "float8 is half of what it is"),
        ("(bits & 0x80) << 8", "(bits & 0x80) << 7", "the sign goes into the exponent"),
        ("magnitude == 0x7F", "magnitude == 0xFF", "float8 has no NaN"),
    ),
    *plant(
        f"{FOLDER}/steps.py",
        QUANTIZED,
        (
            "scales[task.operands.layer[0], 1, task.rows.kv_head]",
            "scales[task.operands.layer[0], 0, task.rows.kv_head]",
            "values take the keys' scales",
        ),
        (
            "operands.kv_scales[operands.layer[0], 0, rows.kv_head]",
            "operands.kv_scales[operands.layer[0], 0, 0]",
            "all heads take the first one's scale",
        ),
    ),
    *plant(
        f"{FOLDER}/steps.py",
        BORDERS,
        ("mask = position[None, :] <= query", "mask = position[None, :] < query", "not itself"),
        (
            "mask &= position[None, :] > query - task",
            "mask &= position[None, :] >= query - task",
            "a window one token long",
        ),
        (
            "position > task.rows.first - task.shape.options.window",
            "position > task.rows.last - task.shape.options.window",
            "tokens that the first query sees are not read",
        ),
        ("(task.operands.layer[0] * 2 + which)", "(which * 2 + which)", "always the first layer"),
        (
            "distance = position[None, :] - task.rows.position[:, None]",
            "distance = position[None, :] - task.rows.first",
            "ALiBi counts from a tile's first query",
        ),
        (
            "score * (task.factor / soft_cap)) * (soft_cap * LOG2E)",
            "score * (task.factor / soft_cap)) * soft_cap",
            "the soft cap is not to base 2",
        ),
        (
            "return _blocks(task, i + 1), gather",
            "return _blocks(task, i), gather",
            "each step reads the blocks of the one before",
        ),
    ),
    *plant(
        f"{FOLDER}/prefill.py",
        BORDERS,
        (
            "diagonal = lax.div(rows.first + 1, block_kv)",
            "diagonal = lax.div(rows.last + 1, block_kv)",
            "the diagonal is not masked",
        ),
        (
            "lax.div(seen_by_last + block_kv - 1, block_kv)",
            "lax.div(seen_by_last, block_kv)",
            "the window's edge is not masked",
        ),
        ("total=jnp.ones_like(sink)", "total=jnp.zeros_like(sink)", "no sink in prefills"),
        (
            "first = tiles.context_lens[seq] - (end - begin)",
            "first = tiles.context_lens[seq] - 1",
            "a chunk's position",
        ),
    ),
    *plant(
        f"{FOLDER}/decode.py",
        BORDERS,
        ("begin = first + split * each", "begin = split * each", "splits forget the window"),
        (
            "position = decodes.context_len[row] - 1",
            "position = decodes.context_len[row]",
            "one too far",
        ),
    ),
    *plant(
        f"{FOLDER}/merge.py",
        BORDERS,
        (
            "exists = split < lax.div(end - first + each - 1, each)",
            "exists = split < lax.div(end - first, each)",
            "the last, shorter split is left out",
        ),
        ("total = weight.sum() + jnp.exp2(sink - shift)", "total = weight.sum()", "no sink"),
        ("result.lse[token, head] = lse * LN2", "result.lse[token, head] = lse", "base 2"),
    ),
    *plant(
        f"{FOLDER}/softmax.py",
        BORDERS,
        ("state.total * keep + weights.sum(1)", "state.total + weights.sum(1)", "no rescaling"),
    ),
    *plant(
        f"{FOLDER}/softmax.py",
        TILES,
        (
            "jnp.where(top == -jnp.inf, 0.0, top)",
            "top",
            "a row that has seen nothing yet is NaN",
        ),
    ),
]
