"""Short tasks: write a part of the engine yourself, and let `check()` say what is wrong with it.

Each file is one task. Read its first lines, fill in what raises NotImplementedError, and run it:

    python -m exercises.allocator

With `--seed 7` it is variant 7 of the task, with other numbers. `exercises/solutions/` has an
answer to each, to be looked at afterwards. By the answer's size, and by the tutorial's chapters:

    short: top_p, verification, crossing_hits, grouped_product, hanging_scheduler
    middle: online_softmax, admission, copy_on_write, prefix_chain, chunks
    long: allocator, swapping, beams, eviction, unified_step

`checking` runs an answer and says what is wrong; `variants` draws numbers from a seed.
"""
