"""The picture of guesses: equal to the oracle's own engine with a drafter, whatever the text."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from playground import guessing
from playground.guessing import NUM_BLOCKS, ORDER, TEXTS, run
from playground.settings import MAX_DRAFTS, MAX_MODEL_LEN, MAX_NUM_SEQS, SettingError, scenario_of
from reference.blocks import BlockManager
from reference.engine import ReferenceEngine
from reference.kv_cache import KVCache
from reference.parameters import parameters
from reference.speculation import ngram_drafts
from scripts import interactive

LONG = " ".join(f"word{i % 7}" for i in range(40))
AWKWARD: tuple[dict[str, Any], ...] = (
    {"prompt": "a", "says": "b", "guesses": 3},  # one token
    {"prompt": "a", "says": "a a a a a a a a", "guesses": 8},
    {"prompt": "🙂 👩‍👩‍👧 🙂", "says": "👩‍👩‍👧 🙂 👩‍👩‍👧 é é", "guesses": 2},
    {"prompt": "<b> & \" ' </script>", "says": "<b> & \" '", "guesses": 3},
    {"prompt": LONG, "says": " ".join(LONG.split()[5:29]), "guesses": 8},
    {"prompt": "x" * 500 + " y " + "x" * 500, "says": "y z", "guesses": 1},
    {"prompt": "so . it ends . so", "says": "on . and on", "guesses": 4},  # a stop among its words
    {"prompt": "a b a b", "says": "a b a b", "guesses": 0},
    {"prompt": "a b a b a", "says": "b a b a c b", "guesses": 3, "lookup_min": 3, "lookup_max": 3},
)
FEW = st.lists(st.sampled_from(("rain", "snow", "and", ".")), min_size=1, max_size=24)
ASKED = st.fixed_dictionaries(
    {"prompt": FEW.map(" ".join), "says": FEW.map(" ".join), "guesses": st.integers(0, 8)},
    optional={"lookup_min": st.integers(1, 3), "lookup_max": st.integers(3, 5)},
)


def served(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """What `ReferenceEngine(drafter=...)` does with it, step by step, over NumPy arrays.

    Its "model" says the request's words by their position. (It is asked for no other: the engine
    draws nothing behind a wrong guess.)
    """
    words = [".", *dict.fromkeys(f"{asked['prompt']} {asked['says']}".split())]
    words = list(dict.fromkeys(word[:20] for word in words))
    prompt, says = (
        [words.index(word[:20]) for word in asked[name].split()] for name in ("prompt", "says")
    )
    text = np.array([*prompt, *says, *[0] * MAX_MODEL_LEN])
    model = SimpleNamespace(
        forward=lambda tokens, positions, *rest: positions[:, None].astype(float),
        compute_logits=lambda hidden: np.eye(len(words))[text[hidden[:, 0].astype(int) + 1]],
    )
    k, low, high = asked["guesses"], asked.get("lookup_min", 1), asked.get("lookup_max", 3)
    engine = ReferenceEngine(
        model,
        KVCache(num_layers=1, num_blocks=NUM_BLOCKS, num_kv_heads=1, block_size=4, head_dim=1),
        enable_prefix_caching=True,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=32,
        max_model_len=MAX_MODEL_LEN,
        max_draft_tokens=MAX_DRAFTS if k else 0,
        drafter=(lambda tokens: ngram_drafts(tokens, k, low, high)) if k else None,
    )
    manager = BlockManager(4, NUM_BLOCKS, enable_prefix_caching=True, free_order=ORDER)
    engine.block_manager = engine.scheduler.block_manager = manager
    engine.scheduler._state.blocks = manager
    params = parameters(max_tokens=len(says), temperature=0.0, stop_token_ids=[0], ignore_eos=True)
    engine.add_request("A", prompt, params)
    (seq,) = engine.scheduler.groups["A"].seqs
    plan, plans, steps = engine.scheduler.schedule, [], []

    def schedule() -> Any:
        plans.append(plan())
        tables.append(manager.block_table(seq.seq_id))
        free.append(manager.num_free_gpu_blocks)
        return plans[-1]

    engine.scheduler.schedule = schedule  # type: ignore[method-assign]
    while engine.has_unfinished_requests():
        tables = [manager.block_table(seq.seq_id)]
        free = [manager.num_free_gpu_blocks]
        known = len(seq.token_ids)
        engine.step()
        (entry,) = plans[-1].scheduled
        cached = {one.block for one in manager.prefix_cache.entries}
        steps.append(
            {
                "start": entry.start,
                "fed": entry.num_tokens,
                "drafts": [words[token] for token in entry.drafts],
                "kept": [words[token] for token in seq.token_ids[known:]],
                "before": tables[0],
                "table": tables[1],
                "after": manager.block_table(seq.seq_id),
                "cached": [block for block in tables[1] if block in cached],
                "free": [*free, manager.num_free_gpu_blocks],
            }
        )
    return steps


def shown(asked: dict[str, Any]) -> list[dict[str, Any]]:
    """The same of the picture."""
    found = run(asked)
    return [
        {
            "start": step["start"],
            "fed": step["fed"],
            "drafts": step["guesses"][: step["drafts"]],
            "kept": step["draws"][: step["kept"]],
            "before": [one["block"] for one in step["blocks"] if one["had"]],
            "table": [one["block"] for one in step["blocks"]],
            "after": [one["block"] for one in step["blocks"] if one["stays"]],
            "cached": [one["block"] for one in step["blocks"] if one["cached"][2]],
            "free": step["free"],
        }
        for step in found["steps"]
    ]


@pytest.mark.parametrize("asked", [*TEXTS.values(), *AWKWARD])
def test_the_picture_is_the_oracle_s_run(asked: dict[str, Any]) -> None:
    assert shown(asked) == served(asked)
    _well_formed(run(asked))


@given(ASKED)
@example({"prompt": "and", "says": "and and and and", "guesses": 8})
def test_i53_the_picture_of_any_text_is_the_oracle_s_run_and_says_what_the_model_says(
    asked: dict[str, Any],
) -> None:
    assert shown(asked) == served(asked)
    found, plain = run(asked), run({**asked, "guesses": 0})
    assert found["words"] == plain["words"]
    assert len(found["steps"]) <= len(plain["steps"])
    _well_formed(found)


def _well_formed(found: dict[str, Any]) -> None:
    """Steps join up, blocks hold what is shown, and the matches are what stands there."""
    words, size, known = found["words"], found["block_size"], found["prompt"]
    memory: dict[int, list[str | None]] = {}
    for step in found["steps"]:
        assert step["known"] == known and len(step["says"]) == (3 if step["kind"] == "guess" else 1)
        fed = [*words[: step["known"]], *step["guesses"][: step["drafts"]]]
        fed = fed[: step["start"] + step["fed"]]
        held = [word for one in step["blocks"] for word in one["holds"]][: len(fed)]
        assert held == fed
        assert all(one["was"] == memory.get(one["block"], [None] * size) for one in step["blocks"])
        memory |= {one["block"]: one["holds"] for one in step["blocks"]}
        if step["match"]:
            start, number = step["match"]
            assert words[start : start + number] == words[known - number : known]
        if step["kind"] == "guess":
            last = (step["known"] + step["drafts"]) // size
            assert not any(one["cached"][1] for one in step["blocks"][step["known"] // size : last])
            assert f"guessed: “{' '.join(step['guesses'][: step['drafts']])}”" in step["says"][0]
            assert f"draws “{' '.join(step['draws'][: step['kept']])}”" in step["says"][2]
        known += step["kept"]
    assert known == len(words) and found["steps"][-1]["free"][2] == NUM_BLOCKS


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "prompt must be 1 to 40 words, got ''"),
        ({"prompt": ""}, "prompt must be 1 to 40 words, got ''"),
        ({"prompt": "a " * 41}, "prompt must be 1 to 40 words, got 'a a"),
        ({"prompt": "a", "says": "b " * 25}, "says must be 0 to 24 words, got 'b b"),
        ({"prompt": "a", "says": 7}, "says must be 0 to 24 words, got 7"),
        ({"prompt": "a", "guesses": 9}, "guesses must be a whole number from 0 to 8, got 9"),
        ({"prompt": "a", "guesses": None}, "guesses must be a whole number from 0 to 8, got None"),
        (
            {"prompt": "a", "lookup_min": 3, "lookup_max": 2},
            "lookup_min must be at most lookup_max, 2, got 3",
        ),
    ],
)
def test_bad_texts_and_numbers_are_named(asked: dict[str, Any], message: str) -> None:
    assert run(asked)["error"].startswith(message)


def test_what_is_not_written_is_drawn_by_chance() -> None:
    found = run({"prompt": "To be or", "guesses": 2})
    assert len(found["words"]) == 3 + 24 and found["words"][-1] == "."


def test_texts_show_what_they_are_named_for() -> None:
    found = {name: run(asked) for name, asked in TEXTS.items()}
    guessed = {
        name: [step for step in one["steps"] if step["kind"] == "guess"]
        for name, one in found.items()
    }
    assert all(step["kept"] == 4 for step in guessed["It copies"])
    kept = [step["kept"] for step in guessed["It quotes"]]
    assert min(kept) == 1 and max(kept) == 4
    assert all(step["kept"] <= 2 for step in guessed["It says new things"])
    given_back = [
        one for step in guessed["It says new things"] for one in step["blocks"] if not one["stays"]
    ]
    assert given_back and not any(one["cached"][2] for one in given_back)
    assert {"plain", "prompt", "guess"} == {
        step["kind"] for step in found["It says new things"]["steps"]
    }


def test_a_step_without_guesses_says_why() -> None:
    def says(**asked: Any) -> list[str]:
        steps = run({"prompt": "a b", **asked})["steps"]
        return [step["says"][0] for step in steps if step["kind"] == "plain"]

    assert says(says="c d", guesses=0)[0].startswith("No guesses are wanted. ")
    assert says(says="c d", guesses=1)[0].startswith("No end of 1 to 3 words stood before, so ")
    one = says(says="c d", guesses=1, lookup_min=1, lookup_max=1)[0]
    assert one.startswith("No end of 1 word stood before, so nothing is guessed. ")
    assert "is the last that it may have, so there is no place" in says(says="a d", guesses=1)[0]


def test_without_javascript_there_is_a_table() -> None:
    page = interactive.speculation()
    first = run(next(iter(TEXTS.values())))
    assert page.count("<tr>") == 1 + len(first["steps"])
    for step in first["steps"]:
        assert f"<td>{' '.join(step['draws'])}</td>" in page
    assert json.dumps(next(iter(TEXTS))) in page
    assert len(page.encode()) < 30_000


def test_a_scenario_takes_guesses_in_unified_scheduling_alone() -> None:
    with pytest.raises(SettingError, match="guesses need scheduling 'unified', not 'sosp'"):
        scenario_of({"guesses": 2, "scheduling": "sosp"})
    with pytest.raises(SettingError, match="request A: beams say what is probable"):
        scenario_of({"requests": [{"prompt": "a", "says": "b", "beams": 2}]})
    scenario = scenario_of({"guesses": 2, "lookup_min": 2, "lookup_max": 4})
    assert scenario.guessing is not None and scenario.settings["max_draft_tokens"] == MAX_DRAFTS
    assert vars(scenario.guessing) == {
        "num_drafts": 2, "prompt_lookup_min": 2, "prompt_lookup_max": 4,
    }  # fmt: skip
    assert guessing.run({"prompt": "a", "says": "b"})["steps"][0]["kind"] == "prompt"
