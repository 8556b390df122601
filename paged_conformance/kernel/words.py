"""What a kernel may be able to do, in words: `capabilities` of adapters, `needs` of properties."""

# What a step may hold, unless the adapter's `capabilities` leave the word out.
FREEDOMS = {
    "unused-rows": "Rows of no sequence, with length 0, stand after the others, or there are only "
    "such rows. Otherwise each row has a query.",
    "padding": "Queries of no sequence stand after the others. Otherwise T is the number of "
    "queries.",
    "any-order": "Prompts, chunks and decodes stand in any order. Otherwise decodes are first.",
    "shared-blocks": "A block stands in several rows. Otherwise each has its own.",
    "unused-entries": "Table entries past a context are any int32. Otherwise they are blocks of "
    "the pool, some of which others use.",
    "unread-nan": "Slots that no query of the step sees hold NaN or infinity, and so may padding "
    "queries and what another sequence sees. Otherwise all numbers are finite.",
}

# What a call may ask for. An adapter need not name these words: its `missing` is asked.
FEATURES = {
    "prompts": "Steps in which a sequence has several queries. Otherwise each has one.",
    "window": "`window`: a query sees its own position and the `window - 1` before it.",
    "soft-cap": "`soft_cap`: a score s becomes c * tanh(s / c).",
    "alibi": "`alibi_slopes` [H]: a score gets slope * (key position - query position).",
    "sinks": "`sinks` [H]: one more score in each softmax, whose value is zero.",
    "lse": "`return_lse`: the log-sum-exp [T, H] is given as well.",
    "float32": "Queries and cache in float32.",
    "bfloat16": "Queries and cache in bfloat16.",
    "float16": "Queries and cache in float16.",
    "int8": "A cache of int8 with `kv_scales`.",
    "float8_e4m3fn": "A cache of float8_e4m3fn with `kv_scales`.",
    "keys-alone": "A cache [L, 1, N, K, B, D], whose values are the keys.",
}

# The word of each feature, and the argument of a call that asks for it.
ARGUMENTS = {
    "window": "window",
    "soft-cap": "soft_cap",
    "alibi": "alibi_slopes",
    "sinks": "sinks",
    "lse": "return_lse",
}

CAPABILITIES = FREEDOMS | FEATURES
