"""A simulation of threads that share one engine, as calls of `LLM` do."""

import gc
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

from jax_engine.engine.calls import Calls, check_all
from jax_engine.errors import (
    EngineDeadError,
    EngineInUseError,
    InvalidRequestError,
    StepFailedError,
)
from tests.simulation.baton import SimulatedLock, simulated_threads
from tests.simulation.build import simulated_host
from tests.simulation.client import Client
from tests.simulation.faults import INJECTED, Interruption
from tests.simulation.requests import Request, draw_request
from tests.simulation.simulation import STEP_LIMIT, Simulation, as_prompt
from tests.support.in_process import check_idle, debug_state
from tests.support.some_adapters import some_lora

MAIN = "caller 0"  # who gets Ctrl-C
type Asked = list[tuple[Any, Request]]  # each checked request, and what it was made of


class ManyThreads(Simulation):
    """Each thread makes a few calls; one more aborts what it likes, and lets time pass.

    The loop has a thread of its own. Each call gets its own outputs, or an error that says why not.
    """

    def __init__(self, seed: int, worker: str = "stub") -> None:
        super().__init__(seed, worker)
        self.engine._lock = SimulatedLock(self.baton)  # type: ignore[assignment]
        self.device.pause = self.baton.pause
        self.broken = self.baton.errors
        self.baton.interrupt = self.press_ctrl_c
        self.ctrl_c_rate = self.chance.choice([0.0, 0.0, 0.1, 0.4])
        self.stop_rate = self.chance.choice([0.0, 0.0, 0.03])
        self.asked: dict[str, Asked] = {}  # by each thread, with its last call
        self.queue: Asked = []  # of `enqueue`, until somebody has the outputs
        self.waiters: list[Asked] = []
        self.given_up: list[Any] = []  # requests of calls that were interrupted
        self.aborted: set[str] = set()
        self.num_astray = 0  # aborts without the loop
        self.checking: set[str] = set()  # threads that only look
        self.num_busy = 0
        self.is_stopped = False

    def run(self) -> None:
        jobs: dict[str, Callable[[], None]] = {
            f"caller {i}": self.call_a_few_times for i in range(self.chance.choice([2, 3, 5]))
        }
        self.num_busy = len(jobs)
        with simulated_host(self.faults), simulated_threads(self.baton):
            self.calls = Calls(self.engine)
            self.baton.run(jobs | {"meddler": self.meddle})
        if self.is_stopped:
            self.engine.outputs()  # the last deltas of streams that nobody reads
        check_idle(self.engine)
        self.log.seen["threads"] += self.baton.num_switches

    def _checked_step(self) -> None:
        """Others look at it between two steps."""
        self.num_steps += 1
        assert self.num_steps < STEP_LIMIT, "I20: a request hangs"
        self.run_step()

    # Callers

    def call_a_few_times(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.call()
            self.clock.advance(self.chance.randint(0, 500))
        self.num_busy -= 1

    def call(self) -> None:
        kind = self.chance.choice([self.run_all, self.run_all, self.enqueue_all, self.stream])
        struck, astray = self.faults.num_struck, self.num_astray
        asked = self.asked[self._me] = []
        try:
            kind(asked)
            if kind == self.enqueue_all and self.chance.random() < 0.7:
                asked, struck, astray = list(self.queue), 0, 0
                self.wait_for_queue(asked)
        except InvalidRequestError as error:
            self._refused(error)
        except (StepFailedError, EngineDeadError, *INJECTED) as error:
            self.log("call failed", self._me, type(error).__name__)
            pressed = str(error) == "Ctrl-C"
            failed = self.faults.num_struck > struck or self.num_astray > astray
            assert pressed or failed or self.is_stopped, "nothing has failed"
            assert self.is_stopped or not isinstance(error, EngineDeadError)
            self.log.seen["Ctrl-C"] += pressed
            self._check_ended(asked)

    def run_all(self, asked: Asked) -> None:
        self._ask(asked, self.chance.choice([1, 1, 2, 3]))
        outputs = self.calls.run([one for one, _ in asked], use_tqdm=False)
        self._take(outputs, asked)

    def stream(self, asked: Asked) -> None:
        self._ask(asked, 1, streams=True)
        [(checked, request)] = asked
        client = None
        with closing(self.calls.stream(checked)) as outputs:  # type: ignore[type-var]
            for output in outputs:
                client = client or self._client(checked, request)
                client.may_be_aborted |= checked.request_id in self.aborted
                self._log_output(output)
                client.take(output, self.clock.now)
                if self.chance.random() < 0.1:
                    self.log("reads no more", self._me)
                    break
            else:
                assert client is not None and client.ended
        self._check_ended(asked)

    def enqueue_all(self, asked: Asked) -> None:
        self._ask(asked, self.chance.choice([1, 1, 2, 3]))
        self.queue += asked  # before they have names, since another thread may wait for them
        try:
            ids = self.calls.enqueue([one for one, _ in asked])
        except BaseException:
            gone = [one for one, _ in asked if one not in self.given_up]
            self.queue = [pair for pair in self.queue if pair[0] not in gone]
            raise
        assert ids == [one.request_id for one, _ in asked], "I51"

    def wait_for_queue(self, mine: Asked) -> None:
        """For what all threads have enqueued and nobody has waited for.

        Args:
            mine: What this call alone waits for; emptied when another thread waits, too.
        """
        self.asked[self._me] = self.queue
        self.waiters.append(mine)
        try:
            if len(self.waiters) > 1:
                for one in self.waiters:
                    one.clear()
            outputs = self.calls.wait_enqueued(use_tqdm=False)
        finally:
            self.waiters = [one for one in self.waiters if one is not mine]
        self.queue.sort(key=lambda pair: pair[0] not in self.given_up)  # names of those may be free
        by_name = {pair[0].request_id: pair for pair in self.queue}
        found = [by_name[output.request_id] for output in outputs]
        self.queue = [pair for pair in self.queue if pair not in found]
        self._take(outputs, found)
        ids = [int(output.request_id) for output in outputs]
        assert ids == sorted(ids), "I51: in the order of the prompts"

    def press_ctrl_c(self) -> None:
        """While the main thread waits, whatever for."""
        if (
            self._me == MAIN
            and MAIN not in self.checking
            and self.chance.random() < self.ctrl_c_rate
        ):
            self.baton.pause()
            self.log.seen["a second Ctrl-C"] += isinstance(sys.exception(), Interruption)
            self.given_up += [one for one, _ in self.asked[MAIN]]
            raise Interruption("Ctrl-C")

    # Who watches

    def meddle(self) -> None:
        """Until all calls have returned."""
        while self.num_busy:
            assert not self.baton.is_alone(), "calls wait, and nobody will wake them"
            self.look()
            act = self.chance.random()
            if act < 0.1:
                self._between_steps(lambda: self.abort_some(self.calls._loops[0].abort))
            elif act < 0.12:
                self._between_steps(lambda: self.abort_some(self.abort_astray))
            elif act < 0.5:
                self._between_steps(lambda: debug_state(self.engine).check())
            elif act < 0.5 + self.stop_rate:
                self.log("stop")
                self.is_stopped = True
                self.log.seen["stopped"] += 1
                self.calls._loops[0].stop()
            self.clock.advance(self.chance.randint(0, 50))
            self.baton.pause()
        if self.log.seen["Ctrl-C"]:
            gc.collect()  # of an error amid another's handling contextlib makes a cycle
        del self.calls  # which ends the loop

    def look(self) -> None:
        """From another thread than the loop's, which is refused while that one has the engine.

        Also when that one got it just before this one could: then it does not wait for a step.
        """
        before = self.engine.driver
        try:
            self.engine.stats()
            assert before is self.engine.driver is None, "two threads use the engine"
        except EngineInUseError:
            assert self.engine.driver is not None
            self.log.seen["engine in use"] += 1
            self.log.seen["refused at the lock"] += before is None

    def abort_some(self, abort: Callable[[list[str]], Any]) -> None:
        groups = debug_state(self.engine).kept["groups"]
        ids = self.chance.sample(groups, min(len(groups), 2))
        self.log("abort", *ids)
        self.aborted.update(ids)
        abort(ids)

    def abort_astray(self, ids: list[str]) -> None:
        """As a logits processor may: the loop is not told."""
        self.num_astray += len(ids)
        self.log.seen["aborted past the loop"] += len(ids)
        self.engine.abort_request(ids)

    # Requests

    @property
    def _me(self) -> str:
        return str(self.baton.current)

    def _ask(self, asked: Asked, count: int, *, streams: bool = False) -> None:
        """With a seed each, since nobody knows in which order threads are served."""
        for _ in range(count):
            request = draw_request(self.chance, self.settings, streams=streams)
            seed = request.params.seed
            params = replace(request.params, seed=5 if seed is None else seed)
            request = replace(request, params=params)
            prompts, timeouts = [as_prompt(request)], [request.timeout]
            loras = [some_lora(request.adapter)]
            [checked] = check_all(self.engine, prompts, [params], [0], timeouts, loras)
            asked.append((checked, request))

    def _client(self, checked: Any, request: Request) -> Client:
        samples, name = self._samples(request, 0), checked.request_id
        assert samples is not None
        client = Client(name, request, samples, 0, None, self.settings.has_text, True)
        client.may_be_aborted = name in self.aborted or checked in self.given_up
        return client

    def _take(self, outputs: list[Any], asked: Asked) -> None:
        assert [one.request_id for one in outputs] == [one.request_id for one, _ in asked], "I51"
        for output, (checked, request) in zip(outputs, asked, strict=True):
            client = self._client(checked, request)
            self._log_output(output)
            client.take(output, self.clock.now)
            assert client.ended

    def _check_ended(self, asked: Asked) -> None:
        """A call that has returned has left nothing behind, or what was asked will end it."""
        groups = self.engine.scheduler.groups

        def left() -> list[str]:
            return [one.request_id for one, _ in asked
                    if (group := groups.get(one.request_id)) is one.group and group]  # fmt: skip

        assert not self._between_steps(left), "a call's requests go on without it"

    def _between_steps(self, work: Callable[[], Any]) -> Any:
        self.checking.add(self._me)
        try:
            return self.calls.of_each(lambda _: work())[0]
        except EngineDeadError:
            assert self.is_stopped
        finally:
            self.checking.remove(self._me)
