"""What holds of any kernel of paged attention without an oracle: I36, I40 to I44, I47."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from paged_conformance.kernel.agreement import also, examples, words_of
from paged_conformance.kernel.cases import OPTIONS, Options, case_of, fill, poisoned
from paged_conformance.kernel.draws import first_steps, seeds, steps
from paged_conformance.kernel.expected import assert_agrees, assert_bits, assert_same
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.target import Kernel, attend, kernel_of
from paged_conformance.properties import Example, Property, demand
from reference.attention import merge_partials

WINDOWS: dict[str, Options] = {
    "all": {},
    "5": OPTIONS["window"],
    "wide": OPTIONS["wide-window"],
}
NOTHING: dict[str, Options] = {
    "window": {"window": 10**6},
    "soft-cap": {"soft_cap": 1e5},
    "alibi": {"alibi_slopes": 0.0},
    "sinks": {"sinks": "-inf"},
}
UNUSED = int(np.iinfo(np.int32).max)


def check_moved_blocks(make: Any, example: Example) -> None:
    """`moved` is the seed of a permutation of the pool."""
    kernel, case = kernel_of(make), case_of(example["step"])
    rng = np.random.default_rng(example["moved"])
    to = rng.permutation(case.kv_cache.shape[2]).astype(np.int32)
    moved = np.empty_like(case.kv_cache)
    moved[:, :, to] = case.kv_cache
    renamed = replace(case, kv_cache=moved, block_tables=to[case.block_tables])
    one, other = attend(kernel, case)[0], attend(kernel, renamed)[0]
    assert_bits(other, one, "blocks were moved to other places in the pool")


def check_unread_slots(make: Any, example: Example) -> None:
    """The slots are past a context, before the window, in other blocks, or in other layers."""
    kernel, case = kernel_of(make), case_of(example["step"])
    options = fill(example["options"], case)
    wild = poisoned(case, options.get("window"), float(example["poison"]))
    one, other = attend(kernel, case, options)[0], attend(kernel, wild, options)[0]
    assert_bits(other, one, f"slots that no query may read hold {example['poison']}")


def check_unused_entries(make: Any, example: Example) -> None:
    """`entry` stands in every table entry past a context."""
    kernel, case = kernel_of(make), case_of(example["step"])
    options = fill(example["options"], case)
    tables = case.block_tables.copy()
    for table, length in zip(tables, case.context_lens, strict=True):
        table[-(-length // case.block_size) :] = example["entry"]
    wild = replace(case, block_tables=tables)
    one, other = attend(kernel, case, options)[0], attend(kernel, wild, options)[0]
    assert_bits(other, one, f"table entries past a context are {example['entry']}")


def check_padding_queries(make: Any, example: Example) -> None:
    kernel, case = kernel_of(make), case_of(example["step"])
    q = case.q.copy()
    q[case.num_tokens :] = np.nan
    one, other = attend(kernel, case)[0], attend(kernel, replace(case, q=q))[0]
    assert_bits(other, one, "queries of no sequence are NaN")


def check_broken_sequence(make: Any, example: Example) -> None:
    """Not-a-numbers that one sequence computed itself reach nobody who does not share them."""
    kernel, case = kernel_of(make), case_of(example["step"])
    broken = example["broken"] % np.count_nonzero(case.query_lens)
    mine = case.blocks_of(broken)
    cache = case.kv_cache.copy()
    cache[:, :, list(mine)] = np.nan
    got, clean = attend(kernel, case.with_cache(cache))[0], attend(kernel, case)[0]
    own = got[case.queries_of(broken)]
    demand(bool(np.isnan(own).all()), f"row {broken} sees nothing but NaN, and hides some")
    demand(not got[case.num_tokens :].any(), f"padding is not zero while row {broken} sees NaN")
    for other in range(len(case.context_lens)):
        if not mine & case.blocks_of(other):
            rows = case.queries_of(other)
            assert_bits(got[rows], clean[rows], f"row {broken} sees NaN, row {other} does not")


def check_two_parts(make: Any, example: Example) -> None:
    """Cut each context at a block's edge, attend to both parts, merge: the whole.

    A part may be empty. It is a sequence without context, and weighs nothing.
    """
    kernel, case = kernel_of(make), case_of(example["step"])
    blocks = min(-(-example["cut"] // case.block_size), case.block_tables.shape[1])
    head = replace(case, context_lens=np.minimum(case.context_lens, blocks * case.block_size))
    # A query needs a context of its own: the first part always has one, the last part not.
    has_tail = case.context_lens > blocks * case.block_size
    order = np.argsort(~has_tail, kind="stable")
    count = np.arange(len(has_tail) + 1)
    tail = replace(
        case,
        q=case.q[order],
        block_tables=np.roll(case.block_tables, -blocks, axis=1)[order],
        context_lens=np.where(has_tail, case.context_lens - head.context_lens, 0)[order],
        query_start_loc=np.minimum(count, has_tail.sum()).astype(np.int32),
    )
    options = {"return_lse": True}
    first, last = attend(kernel, head, options), attend(kernel, tail, options)
    assert first[1] is not None and last[1] is not None
    back = np.argsort(order)
    merged = merge_partials(
        np.stack([first[0], last[0][back]]), np.stack([first[1], last[1][back]])
    )
    assert_same(merged, attend(kernel, case, options), case, options)


def check_repeated_heads(make: Any, example: Example) -> None:
    kernel, grouped = kernel_of(make), case_of(example["step"])
    group = grouped.q.shape[1] // grouped.kv_cache.shape[3]
    repeated = grouped.with_cache(np.repeat(grouped.kv_cache, group, axis=3))
    assert_same(attend(kernel, grouped), attend(kernel, repeated), grouped, {})


def check_option_of_nothing(make: Any, example: Example) -> None:
    kernel, case = kernel_of(make), case_of(example["step"])
    heads = np.ones(case.q.shape[1], np.float32)
    options = {
        name: heads * np.float32(value) if name in ("alibi_slopes", "sinks") else value
        for name, value in example["options"].items()
    }
    assert_same(attend(kernel, case, options), attend(kernel, case), case, {})


def check_decode_of_a_prefill(make: Any, example: Example) -> None:
    kernel, case = kernel_of(make), case_of(example["step"])
    options = fill(example["options"], case)
    last = case.query_start_loc[1:][case.query_lens > 0] - 1
    starts = np.minimum(np.arange(len(case.context_lens) + 1), len(last)).astype(np.int32)
    q = np.zeros((len(case.context_lens), *case.q.shape[1:]), case.q.dtype)
    q[: len(last)] = case.q[last]
    decode = replace(case, q=q, query_start_loc=starts, decode_only=True)
    whole, decoded = attend(kernel, case, options)[0], attend(kernel, decode, options)[0]
    rows = np.zeros_like(decoded)
    rows[: len(last)] = whole[last]
    assert_same((decoded, None), (rows, None), decode, options)


def check_company(make: Any, example: Example) -> None:
    """The first sequence gets bit by bit the same whatever the others hold, if only garbage, and
    up to rounding the same when it is alone in a step of that shape."""
    kernel, case = kernel_of(make), case_of(example["step"])
    mine = slice(0, case.query_start_loc[1])
    found = attend(kernel, case)[0][mine]
    if _takes_nan(kernel):
        garbage = case.q.copy()
        garbage[mine.stop :] = np.nan
        again = attend(kernel, replace(case, q=garbage))[0][mine]
        assert_bits(again, found, "the other sequences' queries are NaN")
    starts = np.minimum(case.query_start_loc, case.query_start_loc[1])
    lens = np.where(np.arange(len(case.context_lens)) == 0, case.context_lens, 0)
    alone = replace(case, query_start_loc=starts, context_lens=lens.astype(np.int32))
    result = attend(kernel, alone)
    assert_agrees(result, alone, {})
    company = np.zeros_like(result[0])
    company[mine] = found
    assert_same(result, (company, None), alone, {})


def check_arguments_stay(make: Any, example: Example) -> None:
    kernel, case = kernel_of(make), case_of(example["step"])
    arrays = {name: one for name, one in vars(case).items() if isinstance(one, np.ndarray)}
    before = {name: one.tobytes() for name, one in arrays.items()}
    attend(kernel, case)
    for name, one in arrays.items():
        demand(one.tobytes() == before[name], f"the kernel changed its argument {name}")


def _takes_nan(kernel: Kernel) -> bool:
    return "unread-nan" in getattr(kernel, "capabilities", ("unread-nan",))


def _poisons(sizes: Sizes) -> st.SearchStrategy[str]:
    return st.sampled_from(["nan", "inf", "-inf"])


UNREAD = "What lies in slots that no query may read does not change a bit of the result."
PROPERTIES = (
    Property(
        name="moved-blocks",
        sentence="Where in the pool a block lies does not change a bit of the result.",
        examples=examples(steps, moved=seeds),
        check=check_moved_blocks,
        invariant="I40",
    ),
    *(
        Property(
            name=f"unread-slots-{name}",
            sentence=UNREAD,
            examples=examples(steps, options=st.just(options), poison=_poisons),
            check=check_unread_slots,
            invariant="I41",
            needs=("unread-nan", *words_of(options)),
        )
        for name, options in WINDOWS.items()
    ),
    Property(
        name="unread-slots-keys-alone",
        sentence="What a masked score hides of a key is hidden of the value, which is the same.",
        examples=examples(also(steps, keys_alone=True), options={}, poison="nan"),
        check=check_unread_slots,
        invariant="I41",
        needs=("unread-nan", "keys-alone"),
    ),
    Property(
        name="unread-slots-8-bit",
        sentence=UNREAD,
        examples=examples(also(first_steps, cache="float8_e4m3fn"), options={}, poison="nan"),
        check=check_unread_slots,
        invariant="I41",
        needs=("unread-nan", "float8_e4m3fn"),
    ),
    *(
        Property(
            name=f"unused-entries-{name}",
            sentence="Table entries past a context are not followed.",
            examples=examples(steps, options=st.just(options), entry=UNUSED),
            check=check_unused_entries,
            invariant="I41",
            needs=("unused-entries", *words_of(options)),
        )
        for name, options in WINDOWS.items()
    ),
    Property(
        name="padding-queries",
        sentence="What queries of no sequence hold does not change a bit of the result.",
        examples=examples(steps),
        check=check_padding_queries,
        invariant="I41",
        needs=("padding", "unread-nan"),
    ),
    Property(
        name="broken-sequence",
        sentence="NaN in what one sequence sees reaches no other that does not see it.",
        examples=examples(steps, broken=lambda sizes: st.integers(0, sizes.seqs - 1)),
        check=check_broken_sequence,
        invariant="I41",
        needs=("unread-nan",),
    ),
    Property(
        name="two-parts",
        sentence="A context cut in two at a block and merged by log-sum-exp equals the whole.",
        examples=examples(
            lambda sizes: first_steps(sizes, decode_only=True),
            cut=lambda sizes: st.integers(1, sizes.context),
        ),
        check=check_two_parts,
        invariant="I42",
        needs=("lse",),
    ),
    Property(
        name="repeated-heads",
        sentence="Grouped heads equal repeated KV heads.",
        examples=examples(first_steps),
        check=check_repeated_heads,
        invariant="I43",
    ),
    *(
        Property(
            name=f"option-of-nothing-{name}",
            sentence="A window, cap, slope or sink that does nothing changes nothing.",
            examples=examples(first_steps, options=options),
            check=check_option_of_nothing,
            invariant="I44",
            needs=words_of(options),
        )
        for name, options in NOTHING.items()
    ),
    *(
        Property(
            name=f"decode-of-a-prefill-{name}",
            sentence="A decode equals the last token of a prefill.",
            examples=examples(steps, options=st.just(options)),
            check=check_decode_of_a_prefill,
            invariant="I47",
            needs=words_of(options),
        )
        for name, options in WINDOWS.items()
    ),
    Property(
        name="company",
        sentence="A sequence gets the same result alone and in company.",
        examples=examples(steps),
        check=check_company,
        invariant="I36",
    ),
    Property(
        name="arguments-stay",
        sentence="A kernel writes into none of its arguments.",
        examples=examples(steps),
        check=check_arguments_stay,
    ),
)
