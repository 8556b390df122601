"""The invariants I1 to I20, checked on a trace: what each says, what it needs, when it has fallen.

A check is given the replayed state behind the plan of a step, and the step. It yields sentences;
the first one of an invariant is what has fallen.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from playground.trace_replayed import Entry, Replayed, Step, prefixes

SENTENCES = {
    "I1": "References of a block = occurrences in live tables, for both pools.",
    "I2": "The free list has no duplicates and no mapped block; a block is free exactly when it "
    "has no reference.",
    "I3": "Free blocks + referenced blocks = size of the pool.",
    "I4": "A table has no block twice. A sliding window only bounds what attention reads: every "
    "block is kept until its sequence ends or is preempted, so that other prompts find it in the "
    "prefix cache.",
    "I5": "A table lies on one device: a running sequence's on the GPU, a swapped one's on the "
    "CPU. Waiting and finished sequences have no table.",
    "I6": "A table has exactly the blocks that its computed and scheduled tokens need.",
    "I7": "Double free, unknown ids and allocation from an empty pool raise and change nothing.",
    "I8": "If `can_X` is true, X succeeds. If it is false, X raises and changes nothing.",
    "I9": "When all requests have finished or were aborted, every block of both pools is in its "
    "free list once.",
    "I10": "No write goes to a block with more than one reference.",
    "I11": "Copy destinations are distinct, are in use, and are not sources.",
    "I12": "A fork changes references only; sequences of one request have equal content up to "
    "their first different token.",
    "I13": "Content: after a replay of swap-ins, swap-outs, copies and writes, slot p of a "
    "sequence holds `tokens[:p+1]`.",
    "I14": "Swapping out and in changes nothing but the blocks' numbers; sharing is kept.",
    "I15": "A step never swaps both in and out; in SOSP mode a prompt step makes no copies.",
    "I16": "An unfinished group is in exactly one queue, a finished one in none.",
    "I17": "Admission takes a prefix of the waiting queue, and none while any group is swapped "
    "out; the youngest are preempted first.",
    "I18": "A step keeps the limits on sequences and tokens; the watermark holds after admission.",
    "I19": "Preemption by recompute keeps tokens, finish state and position in the random numbers.",
    "I20": "A step is never empty while requests are unfinished, and every accepted request "
    "finishes within a bounded number of steps. (A request in parts does, since each part does; "
    "one whose adapter waits for a slot does, since running requests alone hold slots.)",
}
"""As docs/correctness.md has them."""


def section(invariant: str) -> str:
    """The anchor of docs/correctness.md that an invariant stands below."""
    number = int(invariant[1:])
    if number < 10:
        return "blocks-and-tables"
    return "sharing-copy-on-write-swapping" if number < 16 else "scheduler"


type Said = Iterator[str]


@dataclass(frozen=True)
class Check:
    """The check of one invariant.

    Attributes:
        needs: fields of a step without which it cannot be checked, and what a page calls them.
        when: is there something to check in this step? Else the step does not count.
    """

    name: str
    says: Callable[[Replayed, Step], Said]
    needs: Mapping[str, str]
    when: Callable[[Replayed, Step], bool] = lambda _, step: True


def _holders(tables: Mapping[str, list[int]]) -> Counter[int]:
    return Counter(block for table in tables.values() for block in set(table))


def _reserved(state: Replayed) -> set[int]:
    return set(state.trace.get("reserved_blocks", []))


@dataclass(frozen=True)
class Pool:
    """Blocks of one device as a step shows them.

    Attributes:
        free, refs: The free list and the reference counts; None where the trace lacks them.
    """

    name: str
    size: int
    held: Counter[int]
    free: list[int] | None
    refs: list[int] | None
    reserved: set[int]

    def blocks(self) -> list[int]:
        """All that are ever handed out."""
        return [block for block in range(self.size) if block not in self.reserved]

    def count(self, block: int) -> int:
        return self.held[block] if self.refs is None else self.refs[block]


def _pools(state: Replayed, step: Step) -> Iterator[Pool]:
    trace, reserved = state.trace, _reserved(state)
    held, on_cpu = _holders(step["tables"]), _holders(step.get("cpu_tables", {}))
    yield Pool("block", trace["num_gpu_blocks"], held, step.get("free"), step.get("refs"), reserved)
    size, free, refs = trace.get("num_cpu_blocks", 0), step.get("cpu_free"), step.get("cpu_refs")
    yield Pool("CPU block", size, on_cpu, free, refs, set())


def _counts(state: Replayed, step: Step) -> Said:
    for pool in _pools(state, step):
        for block in pool.blocks():
            if pool.count(block) != pool.held[block]:
                found = _tables(pool.held[block])
                yield f"{pool.name} {block} counts {pool.count(block)}, and is in {found}"


def _tables(number: int) -> str:
    return f"{number} table" if number == 1 else f"{number} tables"


def _free(state: Replayed, step: Step) -> Said:
    for pool in _pools(state, step):
        times: Counter[int] = Counter(pool.free or [])
        for block in [] if pool.free is None else pool.blocks():
            name, count = f"{pool.name} {block}", pool.count(block)
            if times[block] > 1:
                yield f"{name} is {times[block]} times in the free list"
            elif times[block] and pool.held[block]:
                yield f"{name} is free, and in {_tables(pool.held[block])}"
            elif bool(times[block]) != (count == 0):
                yield f"{name} is {'free' if times[block] else 'not free'}, with a count of {count}"


def _sum(state: Replayed, step: Step) -> Said:
    for pool in _pools(state, step):
        used = sum(1 for block in pool.blocks() if pool.count(block))
        size = len(pool.blocks())
        if pool.free is not None and len(pool.free) + used != size:
            yield (
                f"{len(pool.free)} free and {used} referenced {pool.name}s are not the {size} of "
                "the pool"
            )


def _once(_: Replayed, step: Step) -> Said:
    for name, table in step["tables"].items():
        for block, count in Counter(table).items():
            if count > 1:
                yield f"block {block} is {count} times in the table of {name}"


def _device(state: Replayed, step: Step) -> Said:
    queues, on_cpu = step["queues"], step.get("cpu_tables", {})
    for name in {**step["tables"], **on_cpu}:
        request = state.request_of(name)
        if request is None:
            yield f"{name} has a table, and was never scheduled, forked or started"
        elif name in state.seqs and state.seqs[name].ended:
            yield f"{name} has a table, and has ended"
        elif name in step["tables"] and name in on_cpu:
            yield f"{name} has a table on the GPU and one on the CPU"
        elif name in step["tables"] and request not in queues["running"]:
            yield f"{name} has a table on the GPU, and does not run"
        elif name in on_cpu and request not in queues.get("swapped", []):
            yield f"{name} has a table on the CPU, and is not swapped out"
    for request in queues["running"]:
        own = [seq for seq, _ in state.of_request(request)] or [request]
        if not any(seq in step["tables"] for seq in own):
            yield f"{request} runs, and has no table on the GPU"


def _size(state: Replayed, step: Step) -> Said:
    ends = {entry.name: entry.end for entry in state.entries}
    for name, table in {**step.get("cpu_tables", {}), **step["tables"]}.items():
        if name in state.seqs:
            tokens = ends.get(name, state.seqs[name].computed)
            need = state.blocks_for(tokens)
            if len(table) != need:
                yield (
                    f"{name} has {tokens} tokens computed or scheduled, which need {need} blocks, "
                    f"and its table has {len(table)}"
                )


def _writes(state: Replayed, step: Step) -> Said:
    """Who holds the block with the same tokens there is spared to write it."""
    own = {name: prefixes(known.tokens) for name, known in state.seqs.items()}
    own |= {entry.name: prefixes(entry.fed) for entry in state.entries}
    for entry in state.entries:
        table = step["tables"].get(entry.name, [])
        for position in range(entry.start, entry.end):
            logical = position // state.block_size
            if logical < len(table):
                yield from _others(state, step, own, entry, position, table[logical])


def _others(
    state: Replayed, step: Step, own: Mapping[str, list[int]], entry: Entry, at: int, block: int
) -> Said:
    mine = own[entry.name][at : at + 1]
    for name, table in step["tables"].items():
        if name == entry.name or block not in table or name not in own:
            continue
        if own[name][at : at + 1] != mine or table.index(block) != at // state.block_size:
            yield f"{entry.name} writes position {at} into block {block}, which {name} holds, too"


def _copies(_: Replayed, step: Step) -> Said:
    held = _holders(step["tables"])
    sources = {source for source, _ in step["copies"]}
    for target, count in Counter(target for _, target in step["copies"]).items():
        if count > 1:
            yield f"{count} blocks are copied to block {target}"
        if not held[target]:
            yield f"a block is copied to block {target}, which nobody holds"
        if target in sources:
            yield f"block {target} is copied, and copied to, in one step"


def _forks(state: Replayed, step: Step) -> Said:
    tables = step["tables"]
    for name, table in tables.items():
        for other, others in tables.items():
            known = name < other and name in state.seqs and other in state.seqs
            if known and state.seqs[name].request == state.seqs[other].request:
                yield from _siblings(state, (name, table), (other, others))


def _siblings(state: Replayed, one: tuple[str, list[int]], other: tuple[str, list[int]]) -> Said:
    a, b = (state.seqs[name] for name, _ in (one, other))
    for logical, pair in enumerate(zip(one[1], other[1], strict=False)):
        end = min((logical + 1) * state.block_size, a.computed, b.computed)
        if pair[0] == pair[1] and a.tokens[:end] != b.tokens[:end]:
            yield f"{one[0]} and {other[0]} share block {pair[0]}, and have other tokens there"


def _content(state: Replayed, step: Step) -> Said:
    """When the step's blocks are moved and its tokens written."""
    for entry in state.entries:
        yield from _reads(state, entry.name, prefixes(entry.fed), step["tables"], "gpu")
    for name in step.get("cpu_tables", {}):
        if name in state.seqs:
            known = state.seqs[name]
            hashes = prefixes(known.tokens[: known.computed])
            yield from _reads(state, name, hashes, step["cpu_tables"], "cpu")


def _reads(
    state: Replayed, name: str, hashes: list[int], tables: Mapping[str, list[int]], device: str
) -> Said:
    memory = state.gpu if device == "gpu" else state.cpu
    table = tables.get(name, [])
    for position, wanted in enumerate(hashes):
        logical, offset = divmod(position, state.block_size)
        if logical >= len(table) or table[logical] >= len(memory):
            yield f"{name} has no block for position {position}"
            return
        if memory[table[logical]][offset] != wanted:
            yield (
                f"position {position} of {name}, in {device.upper()} block {table[logical]}, does "
                "not hold its tokens up to there"
            )
            return


def _swaps(state: Replayed, step: Step) -> Said:
    """Tables behind a swap are those before it, with other numbers (and copies made since)."""
    copies = {source: target for source, target in step.get("copies", [])}
    for pairs, before, after in (
        (step.get("swap_out", []), state.tables, step.get("cpu_tables", {})),
        (step.get("swap_in", []), state.cpu_tables, step["tables"]),
    ):
        new = {source: target for source, target in pairs}
        if len(new) < len(pairs) or len(set(new.values())) < len(new):
            yield "a block is swapped twice, or two blocks to one place"
        for name in before.keys() & after.keys():
            for logical, pair in enumerate(zip(before[name], after[name], strict=False)):
                was, now = pair
                if now not in (new.get(was), copies.get(new.get(was, -1))):
                    yield (
                        f"logical block {logical} of {name} was block {was}, which is swapped to "
                        f"{new.get(was, 'nowhere')}, and is block {now} now"
                    )


def _both_ways(_: Replayed, step: Step) -> Said:
    if step.get("swap_in") and step.get("swap_out"):
        yield "blocks are swapped in and out in one step"


def _queues(state: Replayed, step: Step) -> Said:
    queues = [step["queues"].get(name, []) for name in ("waiting", "running", "swapped")]
    unfinished = state.unfinished()
    for name in unfinished:
        number = sum(queue.count(name) for queue in queues)
        if number != 1:
            yield f"{name} is in {number} queues"
    for name in dict.fromkeys(one for queue in queues for one in queue):
        if name not in unfinished:
            yield f"{name} has ended or not arrived, and is in a queue"


def _order(state: Replayed, step: Step) -> Said:
    if state.waiting is None or state.running is None:
        return
    queues, gone = step["queues"], step.get("preempted", [])
    waited = [*state.waiting, *(one for one in step.get("arrived", []))]
    admitted = [one for one in waited if one in queues["running"]]
    overtaken = [one for one in waited[: len(admitted)] if one not in admitted]
    if overtaken:
        later = next(one for one in admitted if waited.index(one) > waited.index(overtaken[0]))
        yield f"{later} is admitted, and {overtaken[0]}, which waited before it, is not"
    if admitted and queues.get("swapped"):
        yield f"{admitted[0]} is admitted while {queues['swapped'][0]} is swapped out"
    stayed = [one for one in state.running if one not in gone]
    for victim in gone:
        if victim in state.running:
            behind = [o for o in stayed if state.running.index(o) > state.running.index(victim)]
            if behind:
                yield f"{victim} is preempted, and {behind[0]}, which came later, goes on"


def _limits(state: Replayed, step: Step) -> Said:
    trace = state.trace
    tokens = sum(entry.end - entry.start for entry in state.entries)
    if tokens > trace.get("max_num_batched_tokens", tokens):
        most = trace["max_num_batched_tokens"]
        yield f"the step computes {tokens} tokens, and {most} are allowed"
    running = sum(1 for name in step["tables"] if name in state.seqs and not state.seqs[name].ended)
    if running > trace.get("max_num_seqs", running):
        yield f"{running} sequences run, and {trace['max_num_seqs']} are allowed"
    admitted = [entry.name for entry in state.entries if entry.admitted]
    spare = trace.get("watermark_blocks", 0)
    free = len(step["free"]) if "free" in step else spare
    if admitted and not step.get("preempted") and free < spare:
        yield f"{admitted[-1]} is admitted and leaves {free} blocks free, where {spare} must stay"


def _tokens(state: Replayed, _: Step) -> Said:
    for entry in state.entries:
        had, said = len(entry.seq.tokens), entry.said_known
        if entry.seq.lost_blocks and said not in (None, had):
            yield f"{entry.name} had {had} tokens when it was preempted, and comes back with {said}"


def _progress(state: Replayed, step: Step) -> Said:
    moves = state.entries or step.get("preempted") or step.get("swap_in")
    unfinished = state.unfinished()
    if unfinished and not moves:
        yield f"nothing is computed and nothing moves, and {unfinished[0]} has not ended"


PLAN = (
    Check("I1", _counts, {"refs": "reference counts"}),
    Check("I2", _free, {"free": "free list"}),
    Check("I3", _sum, {"free": "free list"}),
    Check("I4", _once, {}),
    Check("I5", _device, {"queues": "queues"}),
    Check("I6", _size, {}),
    Check("I10", _writes, {}),
    Check("I11", _copies, {}, lambda _, step: bool(step.get("copies"))),
    Check("I12", _forks, {}, lambda state, _: len(state.seqs) > len({
        known.request for known in state.seqs.values()})),
    Check("I14", _swaps, {}, lambda _, step: bool(step.get("swap_in") or step.get("swap_out"))),
    Check("I15", _both_ways, {}, lambda _, step: bool(step.get("swap_in") or step.get("swap_out"))),
    Check("I16", _queues, {"queues": "queues"}),
    Check("I17", _order, {"queues": "queues"},
          lambda state, _: state.trace.get("policy", "fcfs") == "fcfs"),
    Check("I18", _limits, {}, lambda state, _: any(
        name in state.trace
        for name in ("max_num_seqs", "max_num_batched_tokens", "watermark_blocks"))),
    Check("I19", _tokens, {}, lambda state, _: any(
        entry.seq.lost_blocks and entry.said_known is not None for entry in state.entries)),
    Check("I20", _progress, {}),
)  # fmt: skip
"""Looked at behind the plan of a step."""
WRITTEN = (Check("I13", _content, {}),)
"""Looked at when blocks are moved and tokens written."""
NEVER = {
    "I7": "a trace has no calls that were refused",
    "I8": "a trace has no questions such as can_swap_out",
}
ABSENT = {
    "I9": "the trace does not say what is free when all have ended",
    "I11": "no block is copied",
    "I12": "no sequence forks",
    "I14": "nothing is swapped",
    "I15": "nothing is swapped",
    "I17": "the engine's policy is not first come, first served",
    "I18": "the trace says no limits",
    "I19": "no request comes back from a preemption by recompute, or no entry says what is known",
}
"""Why an invariant is not checked, where no step has anything of it."""


def check_end(state: Replayed) -> Iterator[tuple[str, str]]:
    """When the last step is over."""
    trace, left = state.trace, state.unfinished()
    if left and trace.get("complete"):
        yield "I20", f"the trace is complete, and {left[0]} has not ended"
    end = trace.get("end", {})
    sizes = {"free": trace["num_gpu_blocks"], "cpu_free": trace.get("num_cpu_blocks", 0)}
    for name, size in sizes.items():
        if name in end and not left:
            free: Counter[int] = Counter(end[name])
            reserved = _reserved(state) if name == "free" else set()
            for block in range(size):
                if block not in reserved and free[block] != 1:
                    on = "CPU block" if name == "cpu_free" else "block"
                    yield "I9", f"all have ended, and {on} {block} is {free[block]} times free"
