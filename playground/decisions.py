"""What was decided in a moment, and the statement that decided it.

A rule says: where this statement of this function has run, that has happened, and it was decided by
that statement, which ran before it in the same call. A test looks each of them up in the oracle.

>>> Rule("f", "g(", "{group} goes", "if fits").says.format(group="A")
'A goes'
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from playground.statements import Function


@dataclass(frozen=True)
class Rule:
    """`happened` and `decided` are how the text of a statement begins (as `ast.unparse` has it).

    Attributes:
        says: with names of what the call's statements have read or set by then, or its arguments;
            `returned` is what the function that the statement calls has returned.
    """

    function: str
    happened: str
    says: str
    decided: str


NO_ROOM = "while need > state.blocks.num_free_gpu_blocks"
ADMISSION = "if not state.has_room_for(group) or num_tokens == 0 or (not fits)"
RULES = (
    Rule("Scheduler.add_group", "group.part_size = check_admission", "{group} is checked for room",
         "if self.config.admission_rule"),
    Rule("_advance_running", "if state.preempt(output) is group",
         "{returned} is preempted: no block is free for {group}", NO_ROOM),
    Rule("_decode", "if state.preempt(output) is group",
         "{returned} is preempted: no block is free for {group}",
         "while state.blocks.num_free_gpu_blocks < len(_behind(group))"),
    Rule("SchedulerState.preempt", "self.enter(group, SequenceStatus.SWAPPED)",
         "{group} is swapped out",
         "if mode == 'swap' and self.blocks.can_swap_out(seq_ids)"),
    Rule("SchedulerState.preempt", "mode = 'recompute'", "{group} is to be recomputed",
         "if mode == 'swap' and self.blocks.can_swap_out(seq_ids)"),
    Rule("_resume_swapped", "state.swap_in(group, output)", "{group} is swapped in",
         "if not state.has_room_for(group) or not state.blocks.can_swap_in"),
    Rule("_resume_swapped", "return", "{group} stays on the CPU",
         "if not state.has_room_for(group) or not state.blocks.can_swap_in"),
    Rule("_decode", "state.swap_in(group, output)", "{group} is swapped in",
         "if not can_swap_in or not state.has_room_for(group)"),
    Rule("_admit_waiting", "state.start(group, output)", "{group} is admitted", ADMISSION),
    Rule("_admit_waiting", "return", "{group} waits", ADMISSION),
    Rule("_admit_prompts", "state.start(group, output)", "{group} is admitted",
         "if not _fits_in_step(state, output, num_tokens) or not leaves_watermark"),
    Rule("AdapterSlots.load", "self.names[place] = adapter", "{adapter} is brought to a slot",
         "if slot"),
    Rule("_with_drafts", "drafts = tuple(seq.drafts[:most])", "{seq} takes guesses",
         "most = min(each, budget, tokens_to_come - 1, slots - known)"),
    Rule("BlockManager.allocate_slots", "table.blocks.append(self._take_gpu_block())",
         "block {returned} is taken", "while len(table.blocks) <"),
    Rule("BlockManager.allocate_slots", "self.gpu.touch(block)", "block {block} is shared",
         "for block in cached"),
    Rule("BlockManager._copy_on_write", "return [(old, new)]",
         "copy on write: block {old} is shared, {new} takes its place",
         "if not self._is_shared(table, start)"),
    Rule("Scheduler._forks", "self.block_manager.fork(", "{group} forks: {child}",
         "for i in range(1, entry.num_samples)"),
    Rule("advance", "blocks.fork(", "{beam} forks", "ranks = "),
    Rule("advance", "blocks.free(", "{beam} fell behind: its blocks go back",
         "if beam not in at_rank.values()"),
    Rule("Scheduler._append", "return self._finish(", "{seq} has ended", "if reason is None"),
    Rule("Scheduler._take_more", "self.block_manager.trim(", "wrong guesses are dropped",
         "if not entry.seq.finished"),
    Rule("BlockManager.trim", "self.gpu.free(", "a block that held none but guesses goes back",
         "while len(table.blocks) > self.num_blocks_for(num_tokens)"),
    Rule("PrefixCache.offer", "self._by_block[block] = entry", "block {block} is cached",
         "if self._find(chain, tuple(prefix), salt) is not None"),
    Rule("PrefixCache.evict", "self._buckets[entry.hash].remove(entry)",
         "what block {block} held is forgotten", "if entry is not None"),
)  # fmt: skip
_NAME = re.compile(r"\{([\w.]+)\}")


def decisions(
    functions: list[Function], calls: list[dict[str, Any]], events: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """In the order in which they were made.

    Returns:
        Of each `says`, and the numbers of the events that `decided` it and in which it `happened`.
    """
    found = []
    for number, event in enumerate(events):
        function = functions[calls[event["call"]]["function"]]
        text = function.statements[event["statement"]].text
        for rule in RULES:
            if rule.function == function.name and _begins(text, rule.happened):
                before = _before(events, number)
                known = dict(calls[event["call"]]["given"])
                for other in (*before, number):
                    known |= {**events[other]["reads"], **events[other]["sets"]}
                made = (call["returned"] for call in calls if call["at"] == number)
                known["returned"] = next(made, None)
                decided = _decided(rule, function, events, before)
                if decided is not None:
                    says = _NAME.sub(lambda name, known=known: known.get(name[1]) or "?", rule.says)  # type: ignore[misc]
                    found.append({"says": says, "decided": decided, "happened": number})
    return found


def _begins(text: str, start: str) -> bool:
    """`return` alone is that statement and no other."""
    return text == start if start == "return" else text.startswith(start)


def _before(events: list[dict[str, Any]], number: int) -> list[int]:
    """The events of the same call up to this one."""
    call = events[number]["call"]
    return [other for other in range(number) if events[other]["call"] == call]


def _decided(
    rule: Rule, function: Function, events: list[dict[str, Any]], before: Iterable[int]
) -> int | None:
    deciding = [
        number
        for number in before
        if function.statements[events[number]["statement"]].text.startswith(rule.decided)
    ]
    return deciding[-1] if deciding else None
