"""Bugs in the kernels for Hopper. Much is worked out before anything is read, and runs anywhere."""

from tests.mutation.planting import Mutant, plant

FOLDER = "pallas_kernels/mosaic"
PLANS = ("tests/kernels/test_mosaic_plans.py",)
# Interpreted, and slow: one of several configurations is enough for each.
BORDERS = "tests/kernels/test_borders.py"
DECODE = (BORDERS, "-k=mosaic-decode-1")
TILES = (BORDERS, "-k=mosaic-prefill-2")
# A window is cut within a block_kv, without ALiBi, which hides what is far away; what must not be
# read is NaN; a part of a context has several stages.
RACES = ("tests/kernels/test_mosaic.py", "-k=no_races and prefill")
RACES_OF_DECODES = ("tests/kernels/test_mosaic.py", "-k=no_races and decode-1")

PARTS: list[Mutant] = plant(f"{FOLDER}/decode.py", PLANS,
    ("begin = lax.div(blocks * split, jnp.maximum(parts, 1))",
     "begin = lax.div(blocks, jnp.maximum(parts, 1)) * split", "uneven splits overlap"),
    ("end = lax.div(blocks * (split + 1), jnp.maximum(parts, 1))",
     "end = begin + lax.div(blocks, jnp.maximum(parts, 1))",
     "the rest of an uneven division is left out"),
    ("jnp.where(split < parts, end, begin)", "end", "parts that do not exist go on"),
    ("context_len + (size - 1), size) - first", "context_len, size) - first",
     "the last block is lost"),
    ("return jnp.maximum(context_len - self.options.window, 0)",
     "return jnp.maximum(context_len - self.options.window + 1, 0)",
     "a window begins one block late"),
    ("blocks * size + (SMALLEST_PART - 1)", "blocks * size", "a part too few"),
    ("return first + begin, first +", "return begin, first +", "a window's first block is none"),
)  # fmt: skip

SPANS: list[Mutant] = plant(f"{FOLDER}/prefill_plan.py", PLANS,
    ("jnp.minimum(last_query + 1, queries)", "last_query + 1", "rows beyond the tile's queries"),
    ("begin - (window - 1), 0)", "begin - window, 0)", "one token before the window"),
    ("plgpu.div(end + (size - 1), size)", "plgpu.div(end, size)", "the last stage is left out"),
    ("plgpu.div(jnp.maximum(end - window, 0) + (size - 1), size)",
     "plgpu.div(jnp.maximum(end - window, 0), size)", "the window's edge is not masked"),
    ("plgpu.div(begin + 1, size), inner", "plgpu.div(end, size), inner",
     "the diagonal is unmasked"),
    ("position + plgpu.div(first_row, kernel.group)", "position + first_row",
     "heads of a group are taken for tokens"),
)  # fmt: skip

PAGES: list[Mutant] = plant(f"{FOLDER}/pages.py", PLANS,
    ("position = block * self.paging.block_kv + i * self.paging.run",
     "position = block * self.paging.block_kv", "every copy of a stage brings the first page"),
    ("plgpu.div(self.high - 1, size)", "plgpu.div(self.high, size)", "an entry past the context"),
    ("jnp.clip(plgpu.div(position, size), first, last)",
     "jnp.minimum(plgpu.div(position, size), last)", "entries before the window are followed"),
    ("(start < self.low) | (start + self.paging.block_kv > self.high)", "(start < self.low)",
     "the end of a context is no edge"),
)  # fmt: skip

PLACES: list[Mutant] = [
    *plant(f"{FOLDER}/metadata.py", PLANS,
        ("(jnp.diff(starts) + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT", "jnp.diff(starts)",
         "sequences begin where TMA cannot write"),
        ("token - starts[seq] + places[seq]", "token + places[seq]", "a later sequence's places"),
        ("min(num_seqs, num_tokens) * (ALIGNMENT - 1)", "ALIGNMENT", "no room for the last places"),
    ),
    *plant(f"{FOLDER}/attention.py", PLANS,
        ("reshape(kv_heads, -1)\n    return jnp.tile",
         "reshape(-1, kv_heads).T\n    return jnp.tile", "slopes of other KV heads"),
        ("-(-wanted // (rows * kv_heads))", "wanted // rows", "splits do not count the heads"),
        ("call.block_tables.shape[1] * block_size // decode",
         "call.block_tables.shape[1] // decode", "blocks are taken for tokens"),
    ),
]  # fmt: skip

KERNELS: list[Mutant] = [
    *plant(f"{FOLDER}/decode.py", DECODE,
        ("+ jnp.where(split == 0, 0.0, -jnp.inf)", "", "a sink counts in every split"),
        ("position - (self.context.high - 1)", "position - self.context.high",
         "ALiBi is off by one"),
        ("jnp.where((begin < end)[..., None, None], lse[..., :heads], -jnp.inf)",
         "lse[..., :heads]", "parts that do not exist are merged"),
    ),
    *plant(f"{FOLDER}/decode.py", RACES_OF_DECODES,
        ("(position >= self.context.low) & (position < self.context.high)",
         "(position < self.context.high)", "tokens before the window weigh something"),
        ("self._copy(ahead, found, 1, slot)", "pass", "values of later stages never come"),
    ),
    *plant(f"{FOLDER}/ring.py", TILES,
        ("visible = distance <= 0", "visible = distance <= 1", "a token sees its successor"),
        ("self.kernel.paging.head_dim, rows.sinks)", "self.kernel.paging.head_dim)",
         "no sink in prefills"),
    ),
    *plant(f"{FOLDER}/prefill.py", TILES,
        ("plgpu.div(first_row + plgpu.indices((ROWS,), 0), kernel.group)",
         "plgpu.div(plgpu.indices((ROWS,), 0), kernel.group)",
         "later parts of a tile have the first one's positions"),
    ),
    *plant(f"{FOLDER}/softmax.py", RACES_OF_DECODES,
        ("running.total * keep + weights", "running.total + weights",
         "old weights are not rescaled"),
    ),
    *plant(f"{FOLDER}/softmax.py", DECODE,
        ("lse = running.top / LOG2_E", "lse = running.top", "the log-sum-exp is to base 2"),
        ("(2 * options.soft_cap) / (power + 1)", "options.soft_cap / (power + 1)", "the soft cap"),
    ),
    *plant(f"{FOLDER}/pages.py", RACES,
        ("inside = (position >= self.low) & (position < self.high)",
         "inside = position >= self.low", "values past a context are kept"),
    ),
    *plant(f"{FOLDER}/ring.py", RACES,
        ("visible &= distance > -options.window", "visible &= distance >= -options.window",
         "a window one token long"),
        ("pl.when(turn >= self.kernel.stages)", "pl.when(turn > self.kernel.stages)",
         "a stage is filled again before it is free"),
    ),
]  # fmt: skip

MUTANTS = [*PARTS, *SPANS, *PAGES, *PLACES, *KERNELS]
