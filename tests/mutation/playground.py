"""Bugs in what readers watch of guesses: the oracle's traces, the playground and its picture."""

from tests.mutation.planting import Mutant, plant

GUESSES = ("tests/reference/test_speculation.py", "-mnot hypothesis")
TRACES = ("tests/playground/test_trace.py",)
SESSIONS = ("tests/playground/test_session.py", "-mnot hypothesis")
PICTURES = ("tests/playground/test_guessing.py", "-mnot hypothesis")

MUTANTS: list[Mutant] = [
    *plant(
        "playground/trace_sentences.py",
        TRACES,
        ("if one.block in before.cached and one.prefix == words and one.salt != salt",
         "if one.block in before.cached and one.prefix == words",
         "a block of the same adapter is said to be no hit"),
        ("            said.append(_no_hit(entry, before))\n", "",
         "nobody says why a prefix is no hit"),
        ("running if adapter and group.adapter == adapter]", "running if adapter]",
         "everybody who runs uses each adapter"),
        ("lay = before.adapters[slot - 1]", "lay = before.run.scheduler.slots.names[slot - 1]",
         "an adapter is never said to be brought"),
        ("behind = [other.request_id for other in run.scheduler.waiting[1:]]", "behind = []",
         "who waits behind a request without a slot is not named"),
    ),
    *plant(
        "reference/speculation.py",
        GUESSES,
        ("for n in range(prompt_lookup_max, prompt_lookup_min - 1, -1):",
         "for n in range(prompt_lookup_min, prompt_lookup_max + 1):", "the shortest n-gram counts"),
        ("token_ids[sum(match) :]", "token_ids[match[0] :]", "an n-gram follows itself"),
    ),
    *plant(
        "playground/trace_run.py",
        TRACES,
        ("request, seq.index, [*output, *before])", "request, seq.index, output)",
         "a traced model does not see guesses"),
    ),
    *plant(
        "playground/trace.py",
        TRACES,
        ("entry.start + entry.num_tokens - entry.num_drafts", "entry.start + entry.num_tokens",
         "guesses are shown as words in memory"),
    ),
    *plant(
        "playground/trace_outcomes.py",
        TRACES,
        ("right = min(kept, ", "right = max(0, ", "guesses behind the end are said to be right"),
        ("if adapter is None or users(run, adapter):", "if adapter is None:",
         "an adapter that others use is said to be left"),
    ),
    *plant(
        "playground/invariants.py",
        SESSIONS,
        ("len(entry.seq.token_ids) // run.blocks.block_size",
         "len(entry.seq.token_ids) // run.blocks.block_size + 1",
         "a block of words and guesses may be cached"),
        ("wanted = says[position] if position < len(says) else None\n",
         "wanted = says[position] if position < len(says) else run.words[token]\n",
         "anything may stand behind the end"),
        ("if free[block] != 1:", "if free[block] == 0:", "a block may be free twice in the end"),
    ),
    *plant(
        "playground/breaks.py",
        SESSIONS,
        ("kept = min(len(accepted(entry.drafts, drawn)), entry.num_drafts)",
         "kept = len(accepted(entry.drafts, drawn)) - 1", "no token too many is kept"),
    ),
    *plant(
        "playground/settings.py",
        PICTURES,
        ("Guessing(number[\"guesses\"], shortest, longest)", "Guessing(number[\"guesses\"])",
         "the lengths of n-grams are not heeded"),
    ),
    *plant(
        "playground/guessing.py",
        PICTURES,
        ("block in before.tables[seq.seq_id]", "block in held.tables[seq.seq_id]",
         "new blocks are shown before the step"),
        ("memory = [list(words) for words in running.memory.gpu]", "memory = running.memory.gpu",
         "blocks hold the step's words before it runs"),
        ("(before, held, Standing(running))", "(before, held, held)",
         "what the cache has learned is not shown"),
    ),
]  # fmt: skip
