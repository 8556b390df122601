"""One simulation: clients come and go, time passes, things fail, and everything is checked."""

from collections import deque
from random import Random
from typing import Any

from jax_engine import RequestOutputKind
from jax_engine.engine.calls import Call, check_all
from jax_engine.engine.engine_loop import EngineLoop
from jax_engine.errors import InvalidRequestError, StepFailedError
from reference.random_numbers import request_seed
from tests.simulation.baton import Baton, simulated_threads
from tests.simulation.build import World, build_engine, simulated_host
from tests.simulation.checks import check_costs
from tests.simulation.client import Client
from tests.simulation.clock import SimulatedClock
from tests.simulation.faults import INJECTED, Faults
from tests.simulation.log import EventLog
from tests.simulation.model import Sample
from tests.simulation.requests import Request, draw_request
from tests.simulation.settings import draw_settings
from tests.simulation.stub_world import StubWorld
from tests.simulation.tiny_world import tiny_world
from tests.support.in_process import check_idle, debug_state
from tests.support.some_adapters import some_lora

IDS = ["0", "1", "2", "3", "4", "5", "a", "b", "what a step costs", ""]
QUEUED = [*IDS, *map(str, range(6, 30))]
STEP_LIMIT = 5000
SECOND = 1024  # ticks
DELTA, CUMULATIVE = RequestOutputKind.DELTA, RequestOutputKind.CUMULATIVE


class Simulation:
    """All that happens follows from the seed.

    Attributes:
        clock, log: Clock and log of this simulation.
        num_steps: That the engine was asked for.
    """

    def __init__(self, seed: int, worker: str = "stub") -> None:
        self.chance = Random(seed)
        self.world: World = StubWorld() if worker == "stub" else tiny_world()
        self.settings = self.world.adapt(draw_settings(self.chance))
        self.clock = SimulatedClock()
        self.log = EventLog(self.clock)
        self.faults = Faults(
            self.chance,
            self.log,
            rate=self.settings.fault_rate,
            full_rate=self.settings.full_rate,
        )
        self.engine, self.device = build_engine(
            self.world, self.settings, self.clock, self.faults, self.chance, self.log
        )
        self.baton = Baton(self.chance)
        self.run_step = self.engine.run_step
        self.engine.run_step = self.checked_step  # type: ignore[method-assign]
        self.num_steps = 0
        self.began = 0.0  # the last step
        self.num_lists = 0  # of outputs that `step` has returned
        self.num_accepted = 0
        self.current: dict[str, Client] = {}  # the last of each id
        self.waiting: dict[str, list[Client]] = {}  # of each id those whose end has not come
        self.stale: set[str] = set()  # ids of which outputs may come that are behind their end
        self.enqueued: list[tuple[Call, list[Client]]] = []
        self.in_turn = False
        self.broken: list[
            BaseException
        ] = []  # what did not hold, of which the loop makes a failure
        self.inbox: deque[tuple[int, float, Any]] = deque()  # outputs that nobody has read
        self.log("settings", self.settings)

    def run(self) -> None:
        busy = self.settings.busy
        actions = {
            self.step: 10.0, self.add: 1 + 6 * busy, self.abort: 1.0, self.read: 2.0,
            self.pass_time: 1.5, self.wait: 0.3, self.leave: 0.1, self.reset: 0.3,
            self.enqueue: self.chance.choice([0.0, 0.3, 0.7]) * busy,
        }  # fmt: skip
        with simulated_host(self.faults), simulated_threads(self.baton):
            self.loop = EngineLoop(self.engine)
            for act in self.chance.choices(
                list(actions), list(actions.values()), k=self.settings.num_actions
            ):
                act()
                self.clock.advance(self.chance.randint(0, SECOND // 16))
            self.finish()

    def finish(self) -> None:
        """I20: everybody's end comes. I9: and then nothing is left."""
        self.clock.stands_still = False
        limit = self.num_steps + STEP_LIMIT
        self.wait()
        while self.engine.has_unfinished_requests():
            self.step()
            self.read_all()
            assert self.num_steps < limit, "I20: a request hangs"
        self.wait()
        self.read_all()
        lost = [client.request_id for clients in self.waiting.values() for client in clients]
        assert not lost, f"the ends of requests {lost} never came"
        check_idle(self.engine)
        self.log.seen["measured costs"] += check_costs(self.engine, self.settings.speed)

    # What clients do

    def add(self) -> None:
        request_id, request = self.chance.choice(IDS), draw_request(self.chance, self.settings)
        samples = self._samples(request, 0)
        if samples is None:
            return
        running = self.engine.is_running(request_id)
        arrival = self.clock.now - (request.waited or 0.0)
        try:
            self.engine.add_request(
                request_id,
                as_prompt(request),
                request.params,
                arrival_time=None if request.waited is None else arrival,
                priority=request.priority,
                timeout=request.timeout,
                lora_request=some_lora(request.adapter),
            )
        except (InvalidRequestError, *INJECTED) as error:
            self._refused(error)
            assert running == self.engine.is_running(request_id), "I21"
            return
        assert not running, "an id twice"
        self._accept(request_id, request, samples, arrival)

    def enqueue(self) -> None:
        count = self.chance.choice([1, 1, 2, 3])
        requests = [draw_request(self.chance, self.settings, streams=False) for _ in range(count)]
        samples = [self._samples(one, i) for i, one in enumerate(requests)]
        if None in samples:
            return
        before, call = set(self.running), Call()
        free = [one for one in QUEUED if one not in before]
        ids = self.chance.choices(QUEUED, k=count)
        if len(free) >= count and self.chance.random() < 0.95:
            ended = [one for one in debug_state(self.engine).kept["ended"] if one in free]
            ids = self.chance.sample(free, count)
            ids = ended[:1] if count == 1 and ended else ids
        try:
            checked = check_all(
                self.engine,
                [as_prompt(one) for one in requests],
                [one.params for one in requests],
                [one.priority for one in requests],
                [one.timeout for one in requests],
                [some_lora(one.adapter) for one in requests],
            )
            for one, request_id in zip(checked, ids, strict=True):
                one.group.request_id = request_id
            if self.loop.is_busy:
                self.collect()  # no job aborts requests and uses their ids again
            with self.engine.driven():
                self.loop.add(checked, call)
        except (InvalidRequestError, *INJECTED) as error:
            self._refused(error)
            assert before == set(self.running), "I21: all or none"
            return
        assert not before & set(ids) and len(set(ids)) == count, "an id twice"
        clients = []
        for request_id, request, wanted in zip(ids, requests, samples, strict=True):
            assert wanted is not None
            clients.append(self._accept(request_id, request, wanted, self.clock.now, mailed=True))
        call.request_ids = ids
        self.enqueued.append((call, clients))

    def wait(self) -> None:
        """For all that was enqueued; other clients' requests run along."""
        limit = self.num_steps + STEP_LIMIT
        while self.loop.is_busy:
            self.turn()
            assert self.num_steps < limit, "I20: a request hangs"
        calls, self.enqueued = self.enqueued, []
        for call, clients in calls:
            self._read_call(call, clients)

    def _read_call(self, call: Call, clients: list[Client]) -> None:
        lost = any(client.ended for client in clients)
        try:
            outputs = call.last_outputs(lambda output: None)
        except StepFailedError as error:
            self.log("wait failed", error)
            assert lost, "nobody's step has failed"
            return
        assert not lost, "a step has failed, and nobody was told"
        assert [one.request_id for one in outputs] == [one.request_id for one in clients], "I51"
        for client, output in zip(clients, outputs, strict=True):
            self._log_output(output)
            client.take(output, self.began)
            assert client.ended

    def leave(self) -> None:
        """As after Ctrl-C: one call's requests end, and nobody else's."""
        if not self.enqueued:
            return
        call, clients = self.enqueued.pop(self.chance.randrange(len(self.enqueued)))
        running = self.running
        left = {one for one in running if self.current[one] not in clients}
        self.log("leave", *call.request_ids)
        self.log.seen["leave"] += bool(set(running) & set(call.request_ids))
        self.loop.leave(call)
        assert set(self.running) == left

    def abort(self) -> None:
        groups = debug_state(self.engine).groups
        ids = self.chance.choices(
            [*self.running, self.chance.choice(IDS)], k=self.chance.choice([1, 1, 2])
        )
        running = {one: self.current[one] for one in ids if one in groups}
        self.log("abort", *ids)
        in_flight = {row.request for _, step in self.device.in_flight for row in step.rows}
        self.log.seen["abort in flight"] += any(groups[one].number in in_flight for one in running)
        for client in running.values():
            client.may_be_aborted = True
        self.loop.abort([one for one, client in running.items() if client.mailed])
        outputs = self.engine.abort_request(ids)
        self.log.seen["a delta behind an abort"] += any(
            client.kind is DELTA and client.received for client in running.values()
        )
        at_once = [
            one for one, client in running.items() if not client.mailed and client.kind is not DELTA
        ]
        assert [output.request_id for output in outputs] == at_once, "I22"
        assert not any(map(self.engine.is_running, ids)) and self.engine.abort_request(ids) == []
        for output in outputs:
            client = running[output.request_id]
            self._log_output(output)
            client.take(output, self.began)
            assert client.ended
            self.waiting[client.request_id].remove(client)
            self.stale |= {client.request_id} if client.kind is CUMULATIVE else set()

    def read(self) -> None:
        """Some of the outputs that came; clients may act amid them."""
        for _ in range(self.chance.randint(1, 8)):
            if not self.inbox:
                return
            self._read_one()
            if self.chance.random() < 0.1:
                self.chance.choice([self.abort, self.add])()

    def read_all(self) -> None:
        while self.inbox:
            self._read_one()

    def pass_time(self) -> None:
        kind = self.chance.choice(["a moment", "a moment", "seconds", "a jump", "still"])
        self.clock.stands_still = kind == "still"
        most = {"a moment": 9, "seconds": 20 * SECOND, "a jump": 3600 * SECOND, "still": 0}[kind]
        self.clock.advance(self.chance.randint(0, most))
        self.log.seen[f"time: {kind}"] += 1

    def reset(self) -> None:
        running = self.chance.random() < 0.5
        done = self.engine.reset_prefix_cache(reset_running_requests=running)
        self.log("reset", running, done)

    # Steps

    def step(self) -> None:
        """One of the loop's while it is busy: then nobody else may step."""
        if self.loop.is_busy:
            self.turn()
            if self.chance.random() < 0.5:
                self.collect()
            return
        try:
            outputs = self.engine.step()
        except INJECTED:
            outputs = self.engine.outputs()  # of turns before
        self._come(outputs)
        if self.chance.random() < 0.7:
            self.read_all()

    def turn(self) -> None:
        """One of the loop's, in which others may act as well."""
        if self.chance.random() < 0.3:
            self.loop.post(
                self.chance.choice([self.abort, self.add, self.pass_time, self.enqueue, self.leave])
            )
        self.in_turn = True
        self.loop.turn()
        self.in_turn = False
        if self.broken:
            raise self.broken[0]

    def collect(self) -> None:
        """What there is for `step`."""
        self._come(self.engine.outputs())

    def _come(self, outputs: list[Any]) -> None:
        self.inbox += [(self.num_lists, self.began, output) for output in outputs]
        self.num_lists += 1

    def checked_step(self) -> None:
        """In place of `run_step`: a step, and all that must hold after it."""
        try:
            self._checked_step()
        except INJECTED:
            raise
        except BaseException as error:
            self.broken.append(error)
            raise

    def _checked_step(self) -> None:
        running = [self.current[one] for one in self.running]
        self.num_steps += bool(running)
        self.began = self.clock.now
        overdue = [
            one for one in running if one.deadline is not None and one.deadline <= self.began
        ]
        if any(one.mailed for one in overdue) and len(overdue) < len(running):
            self.faults.is_due = self.chance.random() < 0.3  # who is out of time needs no step
        try:
            self.run_step()
            left = [one for one in overdue if self.engine.is_running(one.request_id)]
            assert not left, "a deadline has passed and the request goes on"
            self.log.seen["deadline"] += len(overdue)
        except INJECTED as error:
            self._failed([one for one in running if not (one.mailed and one in overdue)], error)
            raise
        finally:
            state = debug_state(self.engine)
            state.check()
            cached = self.chance.random() < 0.2
            in_host = self.world.check_contents(state, self.device.worker, cached=cached)
            self.log.seen["blocks looked at in the host's memory"] += in_host

    def _failed(self, running: list[Client], error: BaseException) -> None:
        """All requests were aborted.

        Clients know from the exception; of a step of the loop's, clients without a call know from
        the next call of `step`.
        """
        self.log("step failed", error)
        self.log.seen["failed step"] += 1
        assert not self.running
        self.device.in_flight.clear()
        if self.chance.random() < 0.3:
            self.reset()
        for client in running:
            if self.in_turn and not client.mailed:
                client.may_be_aborted = True
                continue
            client.ended = True
            if not client.mailed:
                self.waiting[client.request_id].remove(client)
                self.stale.add(client.request_id)

    # Outputs

    def _read_one(self) -> None:
        number, began, output = self.inbox.popleft()
        self._log_output(output)
        name = output.request_id
        clients = [one for one in self.waiting.get(name, ()) if one.born <= number]
        if not clients:
            assert name in self.stale and not output.finished, f"{name}: nobody waits for this"
            return
        clients[0].take(output, began)
        if clients[0].ended:
            self.waiting[name].remove(clients[0])

    def _log_output(self, output: Any) -> None:
        parts = [(one.index, one.token_ids, one.text, one.finish_reason, one.stop_reason)
                 for one in output.outputs]  # fmt: skip
        self.log("output", repr(output.request_id), output.finished, *parts)
        size, hit = self.settings.config["block_size"], output.num_cached_tokens
        assert hit % size == 0 and hit < len(output.prompt_token_ids), "I26"
        assert not hit or self.settings.config["enable_prefix_caching"]
        self.log.seen["cache hit"] += bool(hit)

    # Requests

    def _samples(self, request: Request, ahead: int) -> list[Sample] | None:
        """How the request must come out if it is accepted as the `ahead`-th from here."""
        number = self.num_accepted + ahead
        seed = request_seed(request.params.seed, self.settings.config["seed"], number)
        return self.world.samples(request, seed, self.settings.max_model_len)

    @property
    def running(self) -> list[str]:
        """Ids, in the order in which they were added."""
        return debug_state(self.engine).kept["groups"]

    def _accept(
        self,
        request_id: str,
        request: Request,
        samples: list[Sample],
        arrival: float,
        *,
        mailed: bool = False,
    ) -> Client:
        self.num_accepted += 1
        client = Client(
            request_id, request, samples, self.num_lists, arrival, self.settings.has_text, mailed
        )
        self.current[request_id] = client
        if not mailed:
            self.waiting.setdefault(request_id, []).append(client)
        self.log("accepted", repr(request_id), request)
        return client

    def _refused(self, error: BaseException) -> None:
        self.log("refused", type(error).__name__)
        self.log.seen["refused"] += isinstance(error, InvalidRequestError)


def as_prompt(request: Request) -> Any:
    prompt: dict[str, Any] = {"prompt_token_ids": request.prompt}
    return prompt if request.salt is None else prompt | {"cache_salt": request.salt}
