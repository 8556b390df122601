"""What an adapter of a scheduler has; the package's docstring says what each means."""

from typing import Any, Protocol

Plan = dict[str, Any]


class Scheduler(Protocol):
    """A scheduler with its block manager, all for itself. Arguments come by keyword."""

    def add(
        self,
        *,
        id: str,
        prompt: list[int],
        max_tokens: int,
        ignore_eos: bool,
        stop_token_ids: list[int],
        priority: int,
        arrival: int,
        samples: int,
        adapter: int,
        salt: int,
    ) -> None:
        """Takes a request in. Raises Refused if it is not accepted."""

    def abort(self, *, id: str) -> None:
        """Ends a request at once; nothing happens if there is none of this id."""

    def schedule(self, *, drafts: list[dict[str, Any]]) -> Plan:
        """Plans the next step."""

    def update(self, *, tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Takes in what the oldest planned step has drawn; says which sequences ended."""

    def state(self) -> dict[str, Any]:
        """`unfinished`: the ids of all requests; `free_blocks` and `num_blocks`."""
