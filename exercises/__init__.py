"""Short tasks: write a part of the engine yourself, and let `check()` say what is wrong with it.

Each file is one task. Read its first lines, fill in what raises NotImplementedError, and run it:

    python -m exercises.allocator

In this order: allocator, copy_on_write, online_softmax, hanging_scheduler, prefix_chain, top_p,
verification, grouped_product, crossing_hits.
`exercises/solutions/` has an answer to each, to be looked at afterwards.
"""
