"""Who asked for what this task does: for lines of the log, and for traces."""

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Origin:
    """
    Attributes:
        request_id: the id of the answer that the client is given.
        headers: of the client's request.
    """

    request_id: str
    headers: Mapping[str, str] = field(default_factory=dict)


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
