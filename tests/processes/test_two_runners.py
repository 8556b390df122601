"""A model and its draft model behind one server: steps that take what the host has not read."""

from collections import Counter
from dataclasses import replace
from typing import Any

from jax_engine import LLMEngine, SamplingParams
from jax_engine.step import Step
from tests.support.builders import SETTINGS, pair_without_device, stub_draft
from tests.support.draft_models import draft_config
from tests.support.in_server import in_servers


def run(engine: LLMEngine) -> dict[str, list[list[int]]]:
    for i, prompt in enumerate([[0, 1, 0, 1], [1, 1], [0, 1, 2]]):
        params = SamplingParams(n=1 + i % 2, seed=i, max_tokens=16, ignore_eos=True)
        engine.add_request(str(i), prompt, params)
    found: dict[str, Any] = {}
    while engine.has_unfinished_requests():
        found |= {one.request_id: one for one in engine.step()}
    return {name: [one.token_ids for one in each.outputs] for name, each in found.items()}


def test_tickets_inside_of_steps_are_numbers_on_the_way() -> None:
    settings, config = replace(SETTINGS, max_num_seqs=8), draft_config(3)
    draft = stub_draft(settings, config, accepts=True)
    engine, _ = pair_without_device(settings, ahead=True, speculation=config, draft=draft)
    wanted = run(engine)
    draft = stub_draft(settings, config, accepts=True)
    seen: Counter[str] = Counter()
    with in_servers() as in_server:
        remote = in_server(draft.runner)
        note(draft.runner, seen)
        engine, _ = pair_without_device(
            settings,
            ahead=True,
            speculation=config,
            draft=replace(draft, runner=remote),
            wrap=lambda stub: in_server(note(stub, seen), remote),
        )
        assert run(engine) == wanted
        assert seen["verified"] and seen["drawn"]
        for _ in range(3):  # tickets go with the calls behind them
            remote.host_room([])
        assert len(remote._server._tickets) < 8 < seen["steps"]


def note(runner: Any, seen: Counter[str]) -> Any:
    """Counts the steps of each kind that come to a runner."""
    launch = runner.launch

    def noted(step: Step) -> Any:
        seen["steps"] += 1
        if step.unread is not None:
            assert not any(isinstance(one, int) for one in step.unread.drawn)
            seen["verified"] += step.unread.verified is not None
            seen["drawn"] += bool(step.unread.drawn)
        return launch(step)

    runner.launch = noted
    return runner
