"""A slow server is no hung one: how long to wait for it, and what a late answer says."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from paged_conformance.properties import Property
from paged_conformance.server.client import Client, base
from paged_conformance.server.crowd import together
from paged_conformance.server.measured import count
from paged_conformance.server.wire import Late

PATIENCE = 20.0  # seconds at least for each next byte, unless the caller says otherwise
WARMING_UP = 6  # times the patience: a server's first requests may compile its programs
TOKENS = 16  # of a measured answer
WORST = 200  # tokens that a server may take to come to the first byte, in company
# Seconds a token up to which answers have so many tokens.
LENGTHS = ((0.15, 16), (0.4, 8), (float("inf"), 4))


def seconds_a_token(client: Client, clients: int, *, ignore_eos: bool) -> float:
    """How long each token takes in company of others: the better of two crowds."""
    more = {"ignore_eos": True} if ignore_eos else {}
    request = base(client.api or "completions", max_tokens=TOKENS, **more)

    def ask() -> int:
        usage = client.ask(request, must=True).usage or {}
        return int(usage.get("completion_tokens") or TOKENS)

    found: list[float] = []
    for _ in range(2):
        start = time.monotonic()
        most = max(together([ask] * clients, 4 * client.wire.patience))
        found.append((time.monotonic() - start) / max(1, most))
    return min(found)


def suited(pace: float) -> tuple[float, int]:
    """The patience for a server of so many seconds a token, and its answers' longest length."""
    tokens = next(tokens for least, tokens in LENGTHS if pace <= least)
    return max(PATIENCE, WORST * pace), tokens


def twice(prop: Property) -> Property:
    """A late answer counts if it is late again, after one that may have compiled its program.

    In between the example has WARMING_UP times the patience, so what hangs is late there.
    """

    def check(make: Any, example: Any, once: Callable[[Any, Any], None] = prop.check) -> None:
        try:
            once(make, example)
        except Late:
            if make.client.settle(make.sizes["patience"]):
                raise
            wire = make.client.wire
            patience, wire.patience = wire.patience, WARMING_UP * wire.patience
            try:
                once(make, example)
            finally:
                wire.patience = patience
            once(make, example)
            count("examples that were late once, and not again")

    return replace(prop, check=check)
