"""One request, guess by guess: what docs/javascripts/speculation.js draws, all of it the oracle's.

>>> found = run({"prompt": "a rose is a rose is", "says": "a rose .", "guesses": 2})
>>> [(step["kind"], step["guesses"], step["draws"], step["kept"]) for step in found["steps"]]
[('prompt', [], ['a'], 1), ('guess', ['rose', 'is'], ['rose', '.'], 2)]
>>> run({"prompt": " "})["error"]
"prompt must be 1 to 40 words, got ' '"
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from playground.breaks import System
from playground.settings import SettingError, scenario_of
from playground.trace_outcomes import drawn, written
from playground.trace_scenarios import Guessing
from playground.trace_sentences import Standing, counted, plan
from playground.watched_run import WatchedRun

NUM_BLOCKS = 20
ORDER = tuple((7 * i + 3) % NUM_BLOCKS for i in range(NUM_BLOCKS))
"""Physical blocks are not the logical ones."""
NUMBERS = ("guesses", "lookup_min", "lookup_max")
TEXTS: Mapping[str, Mapping[str, Any]] = {
    "It quotes": {
        "prompt": "the cat sat on the mat and the dog sat on the rug so again :",
        "says": "the cat sat on the mat and the cat sat on the rug .",
        "guesses": 3,
    },
    "It copies": {
        "prompt": "Say again : Four score and seven years ago our fathers brought forth . Four",
        "says": "score and seven years ago our fathers brought forth .",
        "guesses": 3,
    },
    "It says new things": {
        "prompt": "rain on the old bridge and rain on the sea",
        "says": "and the wind on the roads and the light on the hills .",
        "guesses": 3,
    },
}
"""What a page opens without Python."""


def run(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Serves a request to its end.

    Args:
        asked: `prompt`, and what the model `says` (by chance, if nothing); `guesses`,
            `lookup_min` and `lookup_max` of playground/settings.py.

    Returns:
        `words`: those of the sequence at the end, of which the first `prompt` are its prompt;
        `block_size`, `budget`; `steps`, see `_step`. Or only `error`: which setting is wrong.
    """
    request = {name: asked.get(name, "") for name in ("prompt", "says")} | {"max_tokens": 24}
    numbers = {name: asked[name] for name in NUMBERS if name in asked}
    try:
        scenario = scenario_of(
            {"requests": [request], **numbers, "gpu_blocks": NUM_BLOCKS, "prefix_caching": True}
        )
    except SettingError as error:
        return {"error": str(error).removeprefix("request A: ")}
    running = WatchedRun(replace(scenario, free_order=ORDER), System())
    (group,) = running.arrivals(1)
    steps = []
    while running.scheduler.has_unfinished():
        steps.append(_step(running))
    words = [running.words[token] for token in group.seqs[0].token_ids]
    return {
        "words": words,
        "prompt": group.prompt_len,
        "block_size": scenario.block_size,
        "budget": running.scheduler.config.max_num_batched_tokens,
        "steps": steps,
    }


def _step(running: WatchedRun) -> dict[str, Any]:
    """One step of the engine, as in `playground.trace`.

    Returns:
        `kind`: prompt, plain, or guess; `known`: how many words the sequence had; `start`, `fed`:
        the positions that it computes; `match`: where its end stood, and how many words of it;
        `guesses` and how many of them are among the `drafts`; `draws`, and how many of these are
        `kept`; `blocks`: those of its table while the step runs, what they hold (before it, and
        when it has written), whether it `had` them before and has them behind it (`stays`), and
        whether the prefix cache knows them; `free`: how many blocks are. These and what the cache
        knows are told three times: before the step, while it runs, and after. `says`: of a guess
        three captions, for the guess, the step and its outcome; else one.
    """
    before, free = Standing(running), [running.blocks.num_free_gpu_blocks]
    running.guess()
    output = running.scheduler.schedule()
    (entry,) = output.scheduled
    seq, guessing = entry.seq, running.scenario.guessing
    known, planned = list(seq.token_ids), plan(output, before)
    memory = [list(words) for words in running.memory.gpu]
    match = guessing.match(known) if guessing is not None and seq.output_len > 0 else None
    guesses = running.guesses.get(seq.seq_id, [])
    running.write(output.scheduled)
    free.append(running.blocks.num_free_gpu_blocks)
    says, held = [planned, written(output, running)], Standing(running)
    draws = running.draw(entry)
    words = running.text(draws).split()
    running.scheduler.update({seq.seq_id: draws})
    says.append(drawn(output, {seq.seq_id: words}, held))
    free.append(running.blocks.num_free_gpu_blocks)
    in_prompt = len(known) == seq.prompt_len
    kind = "guess" if entry.drafts else "prompt" if in_prompt else "plain"
    if kind != "guess":
        why = _nothing(guessing, match) if kind == "plain" else ""
        says = [" ".join(sentence for sentence in (why, planned, says[-1]) if sentence)]
    return {
        "kind": kind,
        "known": len(known),
        "start": entry.start,
        "fed": entry.num_tokens,
        "match": match,
        "guesses": running.text(guesses).split(),
        "drafts": entry.num_drafts,
        "draws": words,
        "kept": len(seq.token_ids) - len(known),
        "blocks": [
            {
                "block": block,
                "was": memory[block],
                "holds": list(running.memory.gpu[block]),
                "had": block in before.tables[seq.seq_id],
                "stays": block in running.blocks.block_table(seq.seq_id),
                "cached": [block in one.cached for one in (before, held, Standing(running))],
            }
            for block in held.tables[seq.seq_id]
        ],
        "free": free,
        "says": says,
    }


def _nothing(guessing: Guessing | None, match: tuple[int, int] | None) -> str:
    """Why a step has no guesses."""
    if guessing is None:
        return "No guesses are wanted."
    if match is not None:
        return "The next word is the last that it may have, so there is no place for a guess."
    shortest, longest = guessing.prompt_lookup_min, guessing.prompt_lookup_max
    words = counted(longest, "word") if shortest == longest else f"{shortest} to {longest} words"
    return f"No end of {words} stood before, so nothing is guessed."
