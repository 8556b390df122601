"""The kinds of targets, and where the properties of each are."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from paged_conformance.properties import Property


@dataclass(frozen=True)
class Suite:
    """One kind of target.

    Attributes:
        kind: Its name on the command line.
        module: It has `PROPERTIES`, a tuple, and `CAPABILITIES`, a dict of words and what each
            says. Its docstring is the contract. It may have, besides:
            `connect(target, options)` where targets are no Python objects: it takes what the
            command line names, such as a URL, and returns what the properties' checks are given,
            whose `close` is called at the end, if it has one;
            `target(found)`: makes that of what `module:name` or a command gave;
            `numbers`: a dict of what was measured meanwhile, which the report shows.
    """

    kind: str
    module: str

    def properties(self) -> tuple[Property, ...]:
        return cast(tuple[Property, ...], import_module(self.module).PROPERTIES)

    def capabilities(self) -> dict[str, str]:
        return cast(dict[str, str], import_module(self.module).CAPABILITIES)

    def contract(self) -> str:
        return import_module(self.module).__doc__ or ""

    def connect(self) -> Callable[[str, dict[str, str]], Any] | None:
        return getattr(import_module(self.module), "connect", None)

    def adapt(self, found: Any) -> Any:
        return getattr(import_module(self.module), "target", lambda same: same)(found)

    def numbers(self) -> dict[str, float]:
        return dict(getattr(import_module(self.module), "numbers", {}))


SUITES = {
    suite.kind: suite
    for suite in (
        Suite("kernel", "paged_conformance.kernel"),
        Suite("block-manager", "paged_conformance.block_manager"),
        Suite("prefix-cache", "paged_conformance.prefix_cache"),
        Suite("scheduler", "paged_conformance.scheduler"),
        Suite("detokenizer", "paged_conformance.detokenizer"),
        Suite("engine", "paged_conformance.engine"),
        Suite("server", "paged_conformance.server"),
    )
}


class NoSuite(Exception):
    """There is no suite of that kind, or it cannot be imported; the message says what to do."""


def suite_of(kind: str) -> Suite:
    """The suite of a kind, or of a module of one's own, which has a dot in its name.

    Raises:
        NoSuite: There is none, or what it imports is not installed.
    """
    if kind not in SUITES and "." not in kind:
        near = difflib.get_close_matches(kind, SUITES, n=1)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise NoSuite(f"There is no suite {kind!r}.{meant} There are {', '.join(SUITES)}.")
    suite = SUITES.get(kind) or Suite(kind, kind)
    try:
        import_module(suite.module)
    except ModuleNotFoundError as error:
        raise NoSuite(f"The suite {kind} needs the module {error.name!r}.{_extra(kind)}") from error
    return suite


def _extra(kind: str) -> str:
    return " Install paged-conformance[kernel]." if kind == "kernel" else ""
