"""A simulation of threads that share one engine, as calls of `LLM.generate` do."""

from collections.abc import Callable
from dataclasses import replace

from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.shared_batch import SharedBatch

from jax_engine.errors import InvalidRequestError, StepFailedError
from tests.simulation.baton import SimulatedLock, simulated_mail
from tests.simulation.build import simulated_host
from tests.simulation.checks import check_engine, check_idle
from tests.simulation.client import Client
from tests.simulation.faults import INJECTED
from tests.simulation.requests import Request, draw_request
from tests.simulation.simulation import Simulation, as_prompt


class ManyThreads(Simulation):
    """Each thread makes a few calls; one more aborts what it likes, and lets time pass.

    Whichever thread steps, each call gets its own outputs, or an error that says why not.
    """

    def __init__(self, seed: int, worker: str = "stub") -> None:
        super().__init__(seed, worker)
        del self.engine.serve  # nobody acts in the middle of this one
        self.engine.lock = SimulatedLock(self.baton)  # type: ignore[assignment]
        self.device.pause = self.baton.pause
        self.shared = SharedBatch(self.engine)
        self.running: dict[str, Client] = {}
        self.num_busy = 0

    def run(self) -> None:
        jobs: dict[str, Callable[[], None]] = {
            f"caller {i}": self.call_a_few_times for i in range(self.chance.choice([2, 3, 5]))
        }
        self.num_busy = len(jobs)
        with simulated_host(self.faults), simulated_mail(self.baton):
            self.baton.run(jobs | {"meddler": self.meddle})
        check_idle(self.engine)
        self.num_steps = self.engine.stats().num_steps
        self.log.seen["threads"] += self.baton.num_switches

    def call_a_few_times(self) -> None:
        for _ in range(self.chance.randint(1, 4)):
            self.call()
            self.clock.advance(self.chance.randint(0, 500))
        self.num_busy -= 1

    def call(self) -> None:
        requests = [self._draw() for _ in range(self.chance.choice([1, 1, 2, 3]))]
        mailbox, struck_before = Mailbox(), self.faults.num_struck
        try:
            checked = [self.engine.check_request(as_prompt(one), one.params) for one in requests]
            priorities, timeouts = [0] * len(checked), [one.timeout for one in requests]
            ids = self.shared.add(checked, priorities, timeouts, mailbox)
            clients = self._accepted(ids, requests)
            outputs = self.shared.wait(mailbox, use_tqdm=False)
        except InvalidRequestError as error:
            self._refused(error)
            return
        except (StepFailedError, *INJECTED) as error:
            self.log("call failed", self.baton.current, type(error).__name__)
            assert self.faults.num_struck > struck_before, "nothing has failed"
            assert "not in the engine" not in str(error)
            self.engine.abort_all(mailbox)
            assert not self.engine.is_running(mailbox.request_ids)
            return
        assert [one.request_id for one in outputs] == ids, "I51"
        for client, output in zip(clients, outputs, strict=True):
            self._log_output(output)
            client.take(output, self.clock.now)
            assert client.ended

    def meddle(self) -> None:
        """Until all calls have returned."""
        while self.num_busy:
            assert not self.baton.is_alone(), "calls wait, and nobody will wake them"
            ids = self.chance.sample(list(self.running), min(len(self.running), 2))
            if ids and self.chance.random() < 0.1:
                self.log("abort", *ids)
                for one in ids:
                    self.running[one].may_be_aborted = True
                self.engine.abort_request(ids)
            with self.engine.lock:
                check_engine(self.engine)
            self.clock.advance(self.chance.randint(0, 50))
            self.baton.pause()

    def _draw(self) -> Request:
        """With a seed, since nobody knows in which order threads are served."""
        request = draw_request(self.chance, self.settings, streams=False)
        seed = request.params.seed
        return replace(request, params=replace(request.params, seed=5 if seed is None else seed))

    def _accepted(self, ids: list[str], requests: list[Request]) -> list[Client]:
        clients = []
        for request_id, request in zip(ids, requests, strict=True):
            samples = self._samples(request, 0)
            assert samples is not None
            client = Client(request_id, request, samples, 0, None, self.settings.has_text, True)
            self.running[request_id] = client
            clients.append(client)
            self.log("accepted", self.baton.current, repr(request_id), request)
        return clients
