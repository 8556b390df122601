"""A suite of three properties, for tests of the command: a purse holds what is put into it."""

import os
import signal
import sys
from typing import Any

from hypothesis import strategies as st

from paged_conformance import Lacking, Property, Refused, demand

CAPABILITIES = {"lend": "It can be in debt.", "history": "It tells what was put into it."}


def _amounts(_: Any) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, 50), max_size=6)


def _holds_the_sum(make: Any, amounts: list[int]) -> None:
    purse = make(limit=1000)
    for amount in amounts:
        purse.put(amount=amount)
    demand(purse.value() == sum(amounts), f"it holds {purse.value()}, not {sum(amounts)}")


def _refuses_beyond_the_limit(make: Any, amounts: list[int]) -> None:
    purse, held = make(limit=100), 0
    for amount in amounts:
        try:
            purse.put(amount=amount)
        except Refused:
            demand(held + amount > 100, f"{amount} was refused at {held} of 100")
        else:
            held += amount
            demand(held <= 100, f"it took {amount} beyond 100")
        demand(purse.value() == held, f"it holds {purse.value()}, not {held}")


def _lends(make: Any, amount: int) -> None:
    if amount > 3:
        raise Lacking("no debts above 3")
    purse = make(limit=100)
    purse.put(amount=-amount)
    demand(purse.value() == -amount, "a debt is forgotten")


PROPERTIES = (
    Property(
        "holds-the-sum", "A purse holds what was put into it.", _amounts, _holds_the_sum, "I1"
    ),
    Property(
        "refuses-beyond-the-limit",
        "A purse takes no more than its limit, and a refusal changes nothing.",
        _amounts,
        _refuses_beyond_the_limit,
    ),
    Property(
        "lends",
        "A debt is remembered.",
        lambda _: st.integers(0, 5),
        _lends,
        needs=("lend",),
    ),
)


class Purse:
    """Right."""

    def __init__(self, limit: int) -> None:
        self._limit, self._value = limit, 0

    def put(self, *, amount: int) -> None:
        if self._value + amount > self._limit:
            raise Refused(f"{amount} more than {self._limit}")
        self._value += amount

    def value(self) -> int:
        return self._value


class _Lender:
    """A factory that says what its purses can do."""

    capabilities = ("lend",)
    sizes = {"largest": 5}  # noqa: RUF012

    def __call__(self, limit: int) -> Purse:
        return Purse(limit)


class Forgetful(Purse):
    """Wrong: it forgets what is above 20."""

    def put(self, *, amount: int) -> None:
        super().put(amount=min(amount, 20))


class Leaving(Purse):
    """Wrong: it ends the process."""

    def put(self, *, amount: int) -> None:
        sys.exit(3)


class Clumsy(Purse):
    """Wrong: it breaks."""

    def put(self, *, amount: int) -> None:
        raise ZeroDivisionError("the purse is torn")


lender = _Lender()
right, forgetful, clumsy, leaving = Purse, Forgetful, Clumsy, Leaving


class Looping(Purse):
    """Wrong: it never ends on a 7."""

    def put(self, *, amount: int) -> None:
        while amount == 7:
            pass
        super().put(amount=amount)


class Moody(Purse):
    """Wrong the first time it is asked for 30 or more, in each process."""

    calm = True

    def put(self, *, amount: int) -> None:
        if amount >= 30 and Moody.calm:
            Moody.calm = False
            amount += 1
        super().put(amount=amount)


class Interrupting:
    """Somebody interrupts the run when the tenth purse is made."""

    num_made = 0
    capabilities = ("lend",)

    def __call__(self, limit: int) -> Purse:
        self.num_made += 1
        if self.num_made == 10:
            os.kill(os.getpid(), signal.SIGINT)
        return Purse(limit)


class Boastful:
    """A factory that says that its purses can do what no suite knows."""

    capabilities = ("lent",)

    def __call__(self, limit: int) -> Purse:
        return Purse(limit)


boastful, interrupting, looping, moody = Boastful(), Interrupting(), Looping, Moody
