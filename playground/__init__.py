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

The code that lights up, line by line:

    lines        what ran in a moment, with its values
    statements   the functions that are shown, and their statements
    values       values of variables, in a line or less
    decisions    what was decided, and the statement that decided it

Any engine's trace (docs/tutorial/your-trace.md), in the format of engine_trace.schema.json:

    check_trace     which invariants hold, which fell, which it cannot show
    schema          is it such a trace?
    trace_replayed  the trace, played again
    trace_checks    I1 to I20, each on a step of it
    trace_map       its moments, for the block map
    own_trace       what the oracle does, in that format

The traces are those of the replay page, too (docs/traces):

    trace_scenarios  small workloads: two requests, copy on write, memory that runs out
    trace_memory     blocks that hold words in place of keys and values
    trace_run        one of them in motion, with words for a model
    trace_sentences  what the scheduler has decided, and why, in words
    trace_outcomes   what came of it, in words
    trace            all of it as JSON
"""
