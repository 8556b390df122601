"""One loop over those who run, which may grow shorter meanwhile, and one over those who wait."""

from exercises.unified_step import Answer, State


def plan(state: State) -> dict[str, int]:
    planned: dict[str, int] = {}
    left, num_running = state.budget, len(state.running)
    for request in list(state.running):
        count = min(request.length - request.computed, left)
        while request in state.running and state.need(request, count) > state.free:
            state.preempt()
        if request in state.running and count > 0:
            state.take(request, count)
            planned[request.name] = count
            left -= count
    if len(state.running) < num_running:
        return planned
    while state.waiting and left > 0:
        request = state.waiting[0]
        count = min(request.length - request.computed, left)
        if state.free - state.need(request, count) < state.watermark:
            break
        state.running.append(state.waiting.pop(0))
        state.take(request, count)
        planned[request.name] = count
        left -= count
    return planned


ANSWER: Answer = plan
