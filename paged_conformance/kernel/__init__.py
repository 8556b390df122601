"""Paged attention: what a kernel is given, what it must give, and what it may rely on.

    paged-conformance kernel some.module:name

`name` is one of four things:

- A function with the arguments below, of NumPy arrays. It lacks the options that its signature
  lacks. If its module uses JAX, it gets JAX arrays and is compiled by `jax.jit`, and `layer` is
  traced; to decide yourself, wrap it: `kernel.functions.Function` or `JaxFunction`.
- An adapter (`kernel.target.Kernel`) for a kernel with another layout or signature: `name`,
  `sizes`, `missing(case, options)`, which names what it lacks for a call, and `__call__(case,
  options)`, which returns the result [T, H, D] and the log-sum-exp [T, H] or None, as float32 NumPy
  arrays. `case` has the arrays below, `scale`, `layer`, `block_size` and `decode_only`.
- A factory of objects with the method `attend`, which takes the arguments below as plain JSON.
- The same in another process: `paged-conformance kernel --command "..."`.

Letters: T queries, S rows, H query heads, K KV heads, D head size, L layers, N blocks in the pool,
B tokens a block, W width of the table.

- `q` [T, H, D]: the queries, row after row.
- `kv_cache` [L, 2, N, K, B, D]: keys (0) and values (1); [L, 1, ...] where the values are the keys.
- `block_tables` [S, W] int32: position p of row s is slot `p % B` of block `table[s, p // B]`.
- `context_lens` [S] int32: tokens of each row, those of this step included.
- `query_start_loc` [S + 1] int32: row s has the queries from entry s to entry s + 1: its last
  positions.
- `layer`, `scale` int, float: which layer; the factor of the scores.
- `decode_only` bool: promised: T = S, and row i has query i or none. Functions are not told.
- `kv_scales` [L, 2 or 1, K] float32: of an 8-bit cache: stored numbers times its scale.
- options: see the capabilities; what is not asked for is not passed.

Query head h reads KV head `h // (H / K)`. A query sees its own position and those before it. In
this order a score is scaled, soft-capped, biased by ALiBi; then sinks join the softmax. The result
is [T, H, D]; with `return_lse` it is (result, log-sum-exp [T, H]). Arguments must stay as they are,
and equal arguments must give equal bits.

What may occur. A kernel that cannot take it leaves the word out of its `capabilities` (an adapter's
attribute; all of them if it has none), gets steps without it, and properties that are about it are
skipped by name:

- `unused-rows`: Rows without a query have length 0. They stand after the others. All rows may be
  so. Without it: each row has a query.
- `padding`: T is larger than the number of queries. Padding gives zeros, and -inf as log-sum-exp.
  Without it: T is the number of queries.
- `any-order`: Prompts, chunks and decodes stand in any order. Without it: rows with one query are
  first.
- `shared-blocks`: A block stands in several rows, as after a fork or a cache hit. Without it: each
  row has its own.
- `unused-entries`: Table entries past a context are any int32, such as 2147483647. Without it: they
  are blocks of the pool, of this row, of others or of none.
- `unread-nan`: NaN and infinity in slots that no query sees (past a context, before a window, in
  other blocks and layers), in padding queries, and in the queries and blocks of other rows. Without
  it: all numbers are finite.

In any case:

- A context of 1 occurs, and a context that ends anywhere in a block, at its end too. W may be
  larger than any row needs. S and T may be 1.
- A prompt, a chunk after earlier tokens and a decode are the same thing: some last positions.
- Any block of the pool may be used, number 0 too, in any order. It was used before: slots past a
  context hold what others left there.
- Layers, geometries, L, N, W, T and S differ between calls. A window may be 1 or larger than any
  context, a slope 0, a sink -inf.

What never occurs:

- A block twice in one row; a used entry outside of 0 to N - 1.
- A shared block elsewhere than in the common beginning of its rows.
- A query without a context of its own; a row with a context and no query; unused rows between
  others.
- A negative slope, a window below 1, a soft cap of 0 or less, an infinite sink that is positive.
- Another dtype of the cache than of the queries, but for an 8-bit cache with `kv_scales`.

Numbers are drawn from a normal distribution. The tolerance is 1e-5 * (1 + size) for sums in
float32; in half precision one rounding of the result and one of each weight are added.

What a call asks for has words as well. An adapter need not name them, since its `missing` is asked;
a kernel in plain JSON does:

- `prompts`: rows with several queries.
- `window`: `window`: a query sees the last `window` positions, its own included.
- `soft-cap`: `soft_cap` c: a score s becomes c * tanh(s / c).
- `alibi`: `alibi_slopes` [H] float32: a score gets slope * (key position - query position).
- `sinks`: `sinks` [H] float32: one more score in each softmax, whose value is zero.
- `lse`: `return_lse`: the log-sum-exp, natural, in which a sink counts.
- `float32`, `bfloat16`, `float16`: this dtype of queries and cache; float32 if none is named.
- `int8`, `float8_e4m3fn`: this dtype of the cache, with `kv_scales`.
- `keys-alone`: a cache of keys alone, which are the values, too.

bfloat16 and float8 need the package ml_dtypes; without it what needs them is skipped by name.

`missing` may refuse any call, by a geometry too; the call is not made, and an example of which a
call is refused does not count. A property is skipped if all are refused. In plain JSON the answer
`refused` says the same.

`sizes` bounds the steps (`kernel.sizes.Sizes`): a kernel in plain JSON has them as whole numbers,
such as `{"block_size": 16, "kv_heads": 2, "group": 4, "head_dim": 128, "tokens": 64, "seqs": 4}`,
where `group` is H / K, and `context` is the longest context of most steps.

In plain JSON an array is `{"shape": [2, 3], "dtype": "float32", "base64": "..."}`: row after row,
with little-endian numbers. `attend` returns `{"out": array}`, and `"lse": array` if it was asked
for.

An example has `step`: `lengths` (queries and earlier tokens of each row), `shared` (row, earlier
row, number of blocks at the beginning), `seed` of the numbers and of the blocks' places, `geometry`
[B, K, H / K, D], the sizes, `layer`, `dtype`; and `options`, where true stands for numbers that fit
(`kernel.cases.fill`). `kernel.cases.case_of(step)` makes the arrays.
"""

from paged_conformance.kernel import agreement, invariants
from paged_conformance.kernel.adapt import Target, adapter_of, target
from paged_conformance.kernel.words import CAPABILITIES

__all__ = ["CAPABILITIES", "PROPERTIES", "Target", "adapter_of", "target"]

PROPERTIES = (*agreement.PROPERTIES, *invariants.PROPERTIES)
