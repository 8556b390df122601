"""A long prompt beside two decodes: whole, and in chunks; on a clock of 10 ms + 1 ms a token.

The steps are those that the oracle's scheduler plans.
"""

from types import SimpleNamespace

from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from reference.scheduler_config import Scheduling
from reference.sequence import SequenceGroup
from scripts.figures.svg import PHONE, Drawing

FIXED, PER_TOKEN = 10, 1
FILLS = {"a": "a", "b": "b", "long": "c"}
SCALE, LEFT = 4.2, 6


def request(name: str, prompt_len: int, max_tokens: int) -> SequenceGroup:
    params = SimpleNamespace(
        n=1, best_of=None, max_tokens=max_tokens, min_tokens=0, stop_token_ids=[], ignore_eos=True
    )
    return SequenceGroup(name, list(range(prompt_len)), params)


def steps(scheduling: Scheduling, budget: int) -> list[list[tuple[str, int]]]:
    """The requests of each step and their tokens; `long` arrives after the first."""
    scheduler = Scheduler(
        BlockManager(4, 40),
        scheduling=scheduling,
        max_num_seqs=4,
        max_num_batched_tokens=budget,
        max_model_len=32,
    )
    scheduler.add_group(request("a", 2, 9))
    scheduler.add_group(request("b", 3, 9))
    planned = []
    for number in range(7):
        if number == 1:
            scheduler.add_group(request("long", 20, 3))
        output = scheduler.schedule()
        planned.append([(entry.group.request_id, entry.num_tokens) for entry in output.scheduled])
        scheduler.update({e.seq.seq_id: [7] * e.num_samples for e in output.scheduled})
    return planned[1:6]


def draw() -> dict[str, Drawing]:
    picture = Drawing(PHONE, 248, "Whole prompts let others wait; chunks share each step with them")
    rows: list[tuple[str, Scheduling, int]] = [
        ("whole prompts (sosp)", "sosp", 32),
        ("a budget of 8 tokens (unified)", "unified", 8),
    ]
    for row, (title, scheduling, budget) in enumerate(rows):
        y = 22 + row * 92
        picture.text(LEFT, y, title, anchor="start")
        x = float(LEFT)
        for step in steps(scheduling, budget):
            picture.box(x, y + 16, FIXED * SCALE, 34)
            x += FIXED * SCALE
            for name, tokens in step:
                width = tokens * PER_TOKEN * SCALE
                label = str(tokens) if tokens > 2 else ""
                picture.box(x, y + 16, width, 34, label, FILLS[name])
                x += width
            picture.line([(x, y + 10), (x, y + 58)])
    fills = {"fixed cost of a step": "free", **FILLS}
    for x, (name, fill) in zip((0, 150, 192, 234), fills.items(), strict=True):
        picture.box(LEFT + x, 202, 16, 16, "", fill)
        picture.text(LEFT + x + 22, 210, name, anchor="start")
    picture.text(LEFT, 236, "line: end of a step; number: its tokens", anchor="start")
    return {"chunked-prefill": picture}
