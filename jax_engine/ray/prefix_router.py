"""`PrefixRouting` as a request router of Ray Serve: only Serve imports this file.

Each process that sends requests has a router, which knows what it has sent itself. New prompts go
where all of them would send them if all replicas had the same load.
"""

from collections import Counter
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from jax_engine.ray.prefix_routing import PrefixRouting, prompt_blocks


class PrefixAwareRouter(RequestRouter):  # type: ignore[misc]
    """Sends requests with one beginning to one replica, unless it is overloaded."""

    def initialize_state(self, **settings: Any) -> None:
        """
        Args:
            settings: As for `PrefixRouting`: the `request_router_kwargs` of Serve's
                `RequestRouterConfig`.
        """
        self._routing = PrefixRouting(**settings)
        self._sent = Counter[str]()  # requests that were sent from here and have not ended

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """The replica to take, and behind it all others, if it takes no more requests."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # before it asks once more
        named = {_name(one.replica_id): one for one in candidate_replicas}
        if not named:
            return []
        blocks = _blocks(pending_request)
        loads = {name: self._load(one.replica_id) for name, one in named.items()}
        chosen = self._routing.choose(blocks, loads)
        self._routing.add(blocks, chosen)
        return [[named.pop(chosen)], list(named.values())]

    def _load(self, replica_id: ReplicaID) -> int:
        """Requests of a replica: what it said last, or what it has from here, if that is more."""
        said = self.replica_queue_len_cache.get(replica_id) or 0
        return max(said, self._sent[_name(replica_id)])

    def on_send_request(self, replica_id: ReplicaID) -> None:
        """A request is sent."""
        super().on_send_request(replica_id)
        self._sent[_name(replica_id)] += 1

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        """A request has ended, however it did."""
        super().on_request_completed(replica_id, internal_request_id)
        name = _name(replica_id)
        if self._sent[name] > 1:
            self._sent[name] -= 1
        else:
            del self._sent[name]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """The replicas that there are from now on."""
        super().update_replicas(replicas)
        self._routing.keep(map(_name, self.curr_replicas))

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        """A replica has ended, and its cache with it."""
        super().on_replica_actor_died(replica_id)
        self._routing.keep(map(_name, self.curr_replicas))


def _name(replica_id: ReplicaID) -> str:
    return str(replica_id.unique_id)


def _blocks(request: PendingRequest | None) -> list[bytes]:
    """The blocks of a request that `OpenAiIngress` passes on; kept with it, for another try."""
    call = next(iter(request.args), None) if request is not None else None
    body = getattr(call, "body", b"")
    return prompt_blocks(body) if body else []
