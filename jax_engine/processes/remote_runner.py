"""A runner in another process, for a controller that does not notice."""

from typing import Any

import numpy as np
from jaxtyping import Float, UInt32

from jax_engine.processes.runner_client import RemoteTicket, RunnerClient
from jax_engine.step import Capabilities, PreemptionCosts, Step, StepResult


class RemoteRunner:
    """Sends each step when it is launched, and waits where `Runner` says so.

    Its methods raise EngineDeadError once the process has ended, and what a method raised there. A
    step that failed after it was launched raises where the controller next waits.

    Args:
        client: The process.
        place: Which of its runners this is.
    """

    def __init__(self, client: RunnerClient, place: int, capabilities: Capabilities) -> None:
        self.client = client
        self._place, self._capabilities = place, capabilities

    @property
    def capabilities(self) -> Capabilities:
        """See `Runner`."""
        return self._capabilities

    def launch(self, step: Step) -> RemoteTicket:
        """Sends a step, which may be `Unread` from tickets of any runner of the process."""
        unread = step.unread
        if unread is not None:
            drawn = [ticket.number for ticket in unread.drawn]
            verified = None if unread.verified is None else unread.verified.number
            step = step._replace(unread=unread._replace(drawn=drawn, verified=verified))
        return self.client.ticket(self.client.post(self._place, "launch", step))

    def logits(self, ticket: RemoteTicket) -> Float[np.ndarray, "samples V"]:
        """See `Runner`."""
        found: np.ndarray = self._ask("logits", ticket.number)
        return found

    def sample(
        self,
        ticket: RemoteTicket,
        allowed: UInt32[np.ndarray, "samples words"] | None,
        processed: Float[np.ndarray, "samples V"] | None,
    ) -> None:
        """See `Runner`."""
        self.client.post(self._place, "sample", ticket.number, allowed, processed)

    def collect(self, ticket: RemoteTicket) -> StepResult:
        """See `Runner`."""
        result: StepResult = self._ask("collect", ticket.number)
        return result

    def recover(self) -> None:
        """See `Runner`."""
        self._ask("recover")

    def host_room(self, blocks: list[int]) -> bool:
        """See `Runner`."""
        return bool(self._ask("host_room", blocks))

    def measure_costs(self) -> PreemptionCosts:
        """See `Runner`."""
        each = self.client.ask_stages(self._place, "measure_costs")
        blocks = sum(one.seconds_per_block for one in each)  # a step goes through all stages
        return PreemptionCosts(blocks, sum(one.seconds_per_token for one in each))

    def compile_ahead(
        self, max_num_batched_tokens: int, max_num_seqs: int, *, use_tqdm: bool = True
    ) -> int:
        """See `Runner`."""
        limits = max_num_batched_tokens, max_num_seqs
        return int(self._ask("compile_ahead", *limits, use_tqdm=use_tqdm))

    def set_weights(self, model: Any) -> None:
        """Sends the weights: an engine has no need of it, as the process reads its own."""
        self._ask("set_weights", model)

    def _ask(self, method: str, *given: Any, **named: Any) -> Any:
        return self.client.ask(self._place, method, *given, **named)
