"""Drives the reference's scheduler without a model, and prints what it does, a line a step."""

from types import SimpleNamespace

from reference.scheduler import Scheduler
from reference.scheduler_state import SchedulerOutput
from reference.sequence import SequenceGroup

HEADER = "computed          wait  run   swap  free"


def request(name: str, prompt_len: int, max_tokens: int, n: int = 1) -> SequenceGroup:
    """A request for n samples; all its tokens are 0, since nobody looks at them."""
    params = SimpleNamespace(
        n=n,
        best_of=None,
        max_tokens=max_tokens,
        min_tokens=0,
        stop_token_ids=[],
        ignore_eos=True,
    )
    return SequenceGroup(name, [0] * prompt_len, params)


def step(scheduler: Scheduler) -> SchedulerOutput:
    """Plan a step, pretend that the model ran and drew a 0 everywhere, take the tokens in."""
    output = scheduler.schedule()
    drawn = [entry for entry in output.scheduled if entry.num_samples]
    scheduler.update({entry.seq.seq_id: [0] * entry.num_samples for entry in drawn})
    return output


def line(scheduler: Scheduler, output: SchedulerOutput) -> str:
    """Who computed how many tokens; then the queues and the free blocks after the step."""
    computed = " ".join(f"{e.group.request_id}+{e.num_tokens}" for e in output.scheduled)
    queues = [scheduler.waiting, scheduler.running, scheduler.swapped]
    names = ["".join(group.request_id for group in queue) or "-" for queue in queues]
    free = scheduler.block_manager.num_free_gpu_blocks
    return f"{computed:18}{names[0]:6}{names[1]:6}{names[2]:6}{free:4}"


def moves(output: SchedulerOutput) -> list[str]:
    """What was done to blocks before the step, and who lost theirs."""
    notes = [f"preempted {name} by {mode}" for name, mode in output.preempted]
    for what in ("swap_in", "swap_out", "copy"):
        pairs = getattr(output, f"blocks_to_{what}")
        if pairs:
            notes.append(f"{what} " + " ".join(f"{a}->{b}" for a, b in pairs))
    return notes


def run(scheduler: Scheduler, *groups: SequenceGroup, steps: int = 100) -> None:
    """Add requests, then step until all have finished, or so many times."""
    for group in groups:
        scheduler.add_group(group)
    print(HEADER)
    for _ in range(steps):
        if not scheduler.has_unfinished():
            return
        output = step(scheduler)
        print(line(scheduler, output))
        for note in moves(output):
            print("    " + note)
