"""Answers that people would write to the tasks about scheduling, and where each is wrong."""

from collections.abc import Sequence
from typing import Any

from exercises import eviction as eviction_task
from exercises import swapping as swapping_task
from exercises.chunks import Chunk
from exercises.solutions import admission, beams, chunks, eviction, swapping, unified_step
from exercises.unified_step import State

Plan = dict[str, int]


def admit(state: State, left: int, planned: Plan, *, chunked: bool = True) -> int:
    """Rule 2 of the step."""
    while state.waiting and left > 0:
        request = state.waiting[0]
        count = min(request.length, left) if chunked else request.length
        if count > left or state.free - state.need(request, count) < state.watermark:
            break
        state.running.append(state.waiting.pop(0))
        state.take(request, count)
        planned[request.name] = count
        left -= count
    return left


def advance_running(state: State, left: int, planned: Plan, victim: int = -1) -> int:
    """Rule 1 of the step; the budget left."""
    for request in list(state.running):
        count = min(request.length - request.computed, left)
        while request in state.running and state.need(request, count) > state.free:
            state.running.append(state.running.pop(victim))
            state.preempt()
        if request in state.running and count > 0:
            state.take(request, count)
            planned[request.name] = count
            left -= count
    return left


def waiting_first(state: State) -> Plan:
    planned: Plan = {}
    running = state.running
    state.running = []
    left = admit(state, state.budget, planned)
    admitted, state.running = state.running, running
    advance_running(state, left, planned)
    state.running += admitted
    return planned


def admits_after_preemption(state: State) -> Plan:
    planned: Plan = {}
    admit(state, advance_running(state, state.budget, planned), planned)
    return planned


def preempts_the_first(state: State) -> Plan:
    planned: Plan = {}
    running = len(state.running)
    left = advance_running(state, state.budget, planned, victim=0)
    if len(state.running) == running:
        admit(state, left, planned)
    return planned


def preempts_once(state: State) -> Plan:
    planned: Plan = {}
    left, running = state.budget, len(state.running)
    for request in list(state.running):
        count = min(request.length - request.computed, left)
        if request in state.running and state.need(request, count) > state.free:
            state.preempt()
        if request in state.running and count > 0:
            state.take(request, count)
            planned[request.name] = count
            left -= count
    if len(state.running) == running:
        admit(state, left, planned)
    return planned


def whole_prompts_only(state: State) -> Plan:
    planned: Plan = {}
    running = len(state.running)
    left = advance_running(state, state.budget, planned)
    if len(state.running) == running:
        admit(state, left, planned, chunked=False)
    return planned


def passes_over(state: State) -> Plan:
    num_running = len(state.running)
    planned = unified_step.plan(state)
    for request in list(state.waiting[1:] if len(state.running) >= num_running else []):
        if state.free - state.need(request, request.length) >= state.watermark:
            state.waiting.remove(request)
            state.running.append(request)
            state.take(request, request.length)
            planned[request.name] = request.length
    return planned


def with_zeros(state: State) -> Plan:
    planned = unified_step.plan(state)
    return {one.name: planned.get(one.name, 0) for one in state.running}


def without_a_watermark(state: State) -> Plan:
    state.watermark = 0
    return unified_step.plan(state)


def watermark_for_all(state: State) -> Plan:
    state.free -= state.watermark
    planned = unified_step.plan(state)
    state.free += state.watermark
    return planned


def forgets_to_take(state: State) -> Plan:
    planned: Plan = {}
    left = state.budget
    for request in [*state.running, *state.waiting]:
        count = min(request.length - request.computed, left)
        if count:
            planned[request.name] = count
        left -= count
    state.running, state.waiting = [*state.running, *state.waiting], []
    return planned


def plans_nothing(state: State) -> None:
    unified_step.plan(state)


def move_each_table(source: Any, target: Any, tables: Any) -> Any:
    if sum(map(len, tables)) > len(target.free):
        raise swapping_task.NoRoomError
    return swapping.move(source, target, tables)


def move_without_looking(source: Any, target: Any, tables: Any) -> Any:
    moved: dict[int, int] = {}
    for table in tables:
        for logical, block in enumerate(table):
            if block not in moved:
                moved[block] = target.take()
            table[logical] = moved[block]
    return list(moved.items())


def move_copies_of_shared(source: Any, target: Any, tables: Any) -> Any:
    if len({block for table in tables for block in table}) > len(target.free):
        raise swapping_task.NoRoomError
    target.free[:0] = [len(target.words) + i for i in range(len(tables))]
    target.words += [["-"] for _ in tables]
    target.holders += [0 for _ in tables]
    return [pair for table in tables for pair in swapping.move(source, target, [table])]


def move_without_sharing(source: Any, target: Any, tables: Any) -> Any:
    pairs = swapping.move(source, target, tables)
    for block in {new for _, new in pairs}:
        target.holders[block] = 1
    return pairs


def move_frees_for_others(source: Any, target: Any, tables: Any) -> Any:
    pairs = swapping.move(source, target, tables)
    for block, _ in pairs:
        if source.holders[block]:
            source.let_go(block)
    return pairs


def move_keeps(source: Any, target: Any, tables: Any) -> Any:
    held = [block for table in tables for block in table]
    pairs = swapping.move(source, target, tables)
    for block in held:
        if block in source.free:
            source.free.remove(block)
        source.holders[block] += 1
    return pairs


def move_to_new_lists(source: Any, target: Any, tables: Any) -> Any:
    new = [list(table) for table in tables]
    pairs = swapping.move(source, target, new)
    tables[:] = new
    return pairs


def copies_first(gpu: Any, cpu: Any, swap_in: Any, swap_out: Any, copies: Any) -> None:
    swapping.begin_step(gpu, cpu, [], [], copies)
    swapping.begin_step(gpu, cpu, swap_in, swap_out, [])


def copies_between(gpu: Any, cpu: Any, swap_in: Any, swap_out: Any, copies: Any) -> None:
    swapping.begin_step(gpu, cpu, [], swap_out, copies)
    swapping.begin_step(gpu, cpu, swap_in, [], [])


def step_that_aliases(gpu: Any, cpu: Any, swap_in: Any, swap_out: Any, copies: Any) -> None:
    swapping.begin_step(gpu, cpu, swap_in, swap_out, copies)
    for old, new in swap_in:
        gpu.words[new] = cpu.words[old]


def select_by_token(scores: Any, candidates: Any, k: int) -> Any:
    found = [
        (beam, token, scores[beam] + one) for beam in range(k) for token, one in candidates[beam]
    ]
    best = [(one, beam, token) for beam in range(k) for token, one in candidates[beam]]
    best.sort(key=lambda one: (-one[0], one[1], one[2]))
    return [next(it for it in found if it[:2] == (beam, token)) for _, beam, token in best[:k]]


def select_one_of_each(scores: Any, candidates: Any, k: int) -> Any:
    found = [beams.select([score], [candidates[b]], 1)[0] for b, score in enumerate(scores)]
    found = [(b, token, score) for b, (_, token, score) in enumerate(found)]
    return sorted(found, key=lambda one: (-one[2], one[0], one[1]))


def select_the_worst(scores: Any, candidates: Any, k: int) -> Any:
    return beams.select(scores, candidates, 99)[::-1][:k]


def select_unsorted(scores: Any, candidates: Any, k: int) -> Any:
    return sorted(beams.select(scores, candidates, k))


def select_in_given_order(scores: Any, candidates: Any, k: int) -> Any:
    found = [(b, t, scores[b] + one) for b in range(k) for t, one in candidates[b]]
    return sorted(found, key=lambda one: -one[2])[:k]


def advance_frees_first(pool: Any, tables: Any, parents: Any) -> Any:
    for table in tables:
        for block in table:
            pool.let_go(block)
    new = [list(tables[beam]) for beam in parents]
    for table in new:
        for block in table:
            pool.share(block)
    return new


def advance_without_freeing(pool: Any, tables: Any, parents: Any) -> Any:
    for beam in parents:
        for block in tables[beam]:
            pool.share(block)
    return [list(tables[beam]) for beam in parents]


def advance_without_counting(pool: Any, tables: Any, parents: Any) -> Any:
    return [list(tables[beam]) for beam in parents]


def advance_aliases(pool: Any, tables: Any, parents: Any) -> Any:
    beams.advance(pool, tables, parents)
    return [tables[beam] for beam in parents]


def advance_keeps_losers(pool: Any, tables: Any, parents: Any) -> Any:
    new = beams.advance(pool, tables, parents)
    for beam in set(range(len(tables))) - set(parents):
        for block in tables[beam]:
            pool.holders[block] += 1
    return new


def counts_the_last_token(request: Any, size: int) -> int:
    return admission.most_blocks(request._replace(max_tokens=request.max_tokens + 1), size)


def shares_nothing(request: Any, size: int) -> int:
    return int(request.samples * admission.most_blocks(request._replace(samples=1), size))


def shares_the_begun_block(request: Any, size: int) -> int:
    whole = -(-(request.prompt + request.max_tokens - 1) // size)
    shared = -(-request.prompt // size)
    return int(shared + request.samples * (whole - shared))


def without_room_to_grow(request: Any, pool: Any, free: int) -> str:
    return admission.decide(request, pool._replace(num_blocks=pool.num_blocks + 1), free)


def one_more_for_all(request: Any, pool: Any, free: int) -> str:
    more = pool.num_blocks + request.samples - 1
    return admission.decide(request, pool._replace(num_blocks=more), free)


def never_for_free(request: Any, pool: Any, free: int) -> str:
    return admission.decide(request, pool._replace(num_blocks=free), free)


def without_the_watermark(request: Any, pool: Any, free: int) -> str:
    return admission.decide(request, pool._replace(watermark=0), free)


def by_the_whole_answer(request: Any, pool: Any, free: int) -> str:
    said = admission.decide(request, pool, free)
    most = admission.most_blocks(request, pool.block_size)
    return "wait" if said == "now" and free - most < pool.watermark else said


def more_than_the_watermark(request: Any, pool: Any, free: int) -> str:
    said = admission.decide(request, pool, free)
    taken = -(-request.prompt // pool.block_size)
    return "wait" if said == "now" and free - taken <= pool.watermark else said


def cut_at_blocks(
    length: int, cached: int, budgets: Sequence[int], size: int, most: int = 0
) -> list[Chunk]:
    found, start = [], cached
    for budget in budgets:
        end = min(length, start + min(budget, most or budget) // size * size)
        if end > start:
            found.append(Chunk(start, end, -(-end // size) - -(-start // size), end == length))
        start = end
    return found


def cut_with_empty(length: int, cached: int, budgets: Sequence[int], *rest: int) -> list[Chunk]:
    found = chunks.cut(length, cached, [one for one in budgets if one], *rest)
    return [one for budget in budgets for one in ([found.pop(0)] if budget and found else [
        Chunk(0, 0, 0, False)])]  # fmt: skip


def cut_from_the_start(length: int, cached: int, *rest: Any) -> list[Chunk]:
    return chunks.cut(length, 0, *rest)


def cut_that_draws_always(*what: Any) -> list[Chunk]:
    return [one._replace(draws=True) for one in chunks.cut(*what)]


def cut_that_draws_at_its_end(*what: Any) -> list[Chunk]:
    found = chunks.cut(*what)
    return [one._replace(draws=one is found[-1]) for one in found]


def cut_that_counts_own_blocks(*what: Any) -> list[Chunk]:
    size = what[3]
    return [one._replace(new_blocks=-(-(one.end - one.start) // size)) for one in chunks.cut(*what)]


def cut_without_a_limit(
    length: int, cached: int, budgets: Sequence[int], size: int, most: int = 0
) -> list[Chunk]:
    return chunks.cut(length, cached, budgets, size)


def slots_of_logical_blocks(chunk: Chunk, table: Sequence[int], size: int) -> list[int]:
    return [*range(chunk.start, chunk.end)]


def slots_from_the_first_block(chunk: Chunk, table: Sequence[int], size: int) -> list[int]:
    count = chunk.end - chunk.start
    return chunks.slots(chunk._replace(start=0, end=count), table, size)


class ForgetsAtOnce(eviction.Cache):
    def free(self, table: Sequence[int]) -> None:
        super().free(table)
        for block in self.queue:
            self.key_of[block] = None


class NeverForgets(eviction.Cache):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.block_of: dict[str, int] = {}

    def take(self, key: str | None) -> int:
        block = super().take(key)
        if key is not None:
            self.block_of[key] = block
        return block

    def find(self, key: str) -> int | None:
        return super().find(key) if key in self.key_of else self.block_of.get(key)


class Stack(eviction.Cache):
    def take(self, key: str | None) -> int:
        if not self.queue:
            raise eviction_task.NoBlockError
        self.queue.insert(0, self.queue.pop())
        return super().take(key)


class FreesFirstBlockFirst(eviction.Cache):
    def free(self, table: Sequence[int]) -> None:
        super().free([*reversed(table)])


class StaysInTheQueue(eviction.Cache):
    def find(self, key: str) -> int | None:
        before = list(self.queue)
        block = super().find(key)
        self.queue = before
        return block


class FindsWithoutAHolder(eviction.Cache):
    def find(self, key: str) -> int | None:
        return self.key_of.index(key) if key in self.key_of else None


class KnowsNone(eviction.Cache):
    """Two blocks that are not full are taken for one."""

    def take(self, key: str | None) -> int:
        found = super().find(key) if key is None and None in self.used() else None  # type: ignore
        return super().take(key) if found is None else found

    def used(self) -> list[str | None]:
        return [self.key_of[block] for block in range(len(self.holders)) if self.holders[block]]


class QueueOfIndexErrors(eviction.Cache):
    def take(self, key: str | None) -> int:
        self.queue[0]
        return super().take(key)


WRONG: list[tuple[str, Any, str]] = [
    ("unified_step", waiting_first, "they come first"),
    ("unified_step", whole_prompts_only, "C waits with a prompt larger than the budget"),
    ("unified_step", with_zeros, "nothing is left for either"),
    ("unified_step", watermark_for_all, "the watermark is for those who wait"),
    ("unified_step", preempts_the_first, "C runs behind them with 2 blocks"),
    ("unified_step", preempts_once, "B and C run behind it with 1 each"),
    ("unified_step", admits_after_preemption, "C is preempted, so nobody is admitted"),
    ("unified_step", passes_over, "nobody is passed over"),
    ("unified_step", without_a_watermark, "2 are free, B, behind it, needs 1"),
    ("unified_step", forgets_to_take, "nothing is left for either"),
    ("unified_step", plans_nothing, "plan returned None"),
    ("swapping", (move_each_table, swapping.begin_step), "your code raised NoRoomError"),
    ("swapping", (move_without_looking, swapping.begin_step), "should raise NoRoomError"),
    ("swapping", (move_copies_of_shared, swapping.begin_step), "it moves once"),
    ("swapping", (move_without_sharing, swapping.begin_step), "the shared block on the CPU: got 1"),
    ("swapping", (move_frees_for_others, swapping.begin_step), "held by another request"),
    ("swapping", (move_keeps, swapping.begin_step), "holders left of the shared block"),
    ("swapping", (move_to_new_lists, swapping.begin_step), "the tables are other lists now"),
    ("swapping", (swapping.move, copies_first), "over which a copy was made: got ['g4']"),
    ("swapping", (swapping.move, copies_between), "the copy of a block that has just come in"),
    ("swapping", (swapping.move, step_that_aliases), "are the same list"),
    ("beams", (select_by_token, beams.advance), "the whole text counts"),
    ("beams", (select_one_of_each, beams.advance), "one beam has all the children"),
    ("beams", (select_the_worst, beams.advance), "behind scores"),
    ("beams", (select_unsorted, beams.advance), "not in order of beams"),
    ("beams", (select_in_given_order, beams.advance), "by beam, then by token"),
    ("beams", (beams.select, advance_frees_first), "share before you let go"),
    ("beams", (beams.select, advance_without_freeing), "the holders of blocks"),
    ("beams", (beams.select, advance_without_counting), "the last beam has all the children"),
    ("beams", (beams.select, advance_aliases), "the same list for a table"),
    ("beams", (beams.select, advance_keeps_losers), "the last beam has all the children: the hol"),
    ("admission", (counts_the_last_token, admission.decide), "the last one is never fed"),
    ("admission", (shares_nothing, admission.decide), "the prompt's two blocks are shared"),
    ("admission", (shares_the_begun_block, admission.decide), "each gets a copy of it"),
    ("admission", (admission.most_blocks, without_room_to_grow), "even with nobody else there"),
    ("admission", (admission.most_blocks, one_more_for_all), "each sample might need one block"),
    ("admission", (admission.most_blocks, never_for_free), "others hold all blocks now"),
    ("admission", (admission.most_blocks, without_the_watermark), "even with nobody else there"),
    ("admission", (admission.most_blocks, by_the_whole_answer), "its prompt takes 2, and the wat"),
    ("admission", (admission.most_blocks, more_than_the_watermark), "takes 2, and the watermark"),
    ("chunks", (cut_at_blocks, chunks.slots), "the prompt ends before the budgets do"),
    ("chunks", (cut_with_empty, chunks.slots), "(start, end) of the chunks"),
    ("chunks", (cut_from_the_start, chunks.slots), "of which 8 are cached"),
    ("chunks", (cut_that_draws_always, chunks.slots), "only the last position's draws"),
    ("chunks", (cut_that_draws_at_its_end, chunks.slots), "the prompt is not done"),
    ("chunks", (cut_that_counts_own_blocks, chunks.slots), "one may be begun already"),
    ("chunks", (cut_without_a_limit, chunks.slots), "at most 4 a chunk"),
    ("chunks", (chunks.cut, slots_of_logical_blocks), "the slots of positions 3 to 8"),
    ("chunks", (chunks.cut, slots_from_the_first_block), "the slots of positions 3 to 8"),
    ("eviction", ForgetsAtOnce, "it keeps its content"),
    ("eviction", NeverForgets, "a key whose block was handed out again"),
    ("eviction", Stack, "hand out: got [3, 2, 1, 0]"),
    ("eviction", FreesFirstBlockFirst, "the last of the table first"),
    ("eviction", StaysInTheQueue, "it left the queue"),
    ("eviction", FindsWithoutAHolder, "block 1 was held twice"),
    ("eviction", KnowsNone, "each of them once"),
    ("eviction", QueueOfIndexErrors, "raised IndexError, but it should raise NoBlockError"),
]
