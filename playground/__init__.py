"""The playground of the docs: the oracle's scheduler and block manager under a reader's settings.

It runs in the browser as it runs here: it needs the standard library and the parts of `reference/`
that work without NumPy.

    settings     what a reader may set, checked
    words        what requests say, where there is no model
    watched_run  a run whose invariants are checked at every step
    invariants   what must hold, by the names of the specification
    breaks       faults that can be planted
    smallest     the smallest example that shows a fault
    session      from settings to a trace

A model that speaks in a page, in plain lists:

    tiny_llama   a trained Llama of two layers over blocks
    speaking     what it says, and what happens to its blocks on the way

The traces are those of the replay page, too (docs/traces):

    trace_scenarios  small workloads: two requests, copy on write, memory that runs out
    trace_memory     blocks that hold words in place of keys and values
    trace_run        one of them in motion, with words for a model
    trace_sentences  what the scheduler has decided, and why, in words
    trace_outcomes   what came of it, in words
    trace            all of it as JSON
"""
