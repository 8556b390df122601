"""Tables of vLLM's settings and flags for the documentation: what becomes of each here."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

from jax_engine.commands import vllm_flags
from jax_engine.config import vllm_settings as of_engine
from jax_engine.config.engine_config import EngineConfig
from scripts.vllm_settings import NOTED

type Taken = Mapping[str, tuple[Any, ...]]


def vllm_tables(part: str) -> str:
    """The tables of the engine's settings ("engine"), or of the server's flags ("server")."""
    noted = json.loads(NOTED.read_text("utf-8"))
    names: list[str] = list(noted[part])
    if part == "engine":
        own = {one.name for one in fields(EngineConfig)} | set(of_engine.SPECULATION)
        tables: tuple[Taken, Any] = (of_engine.WITHOUT_EFFECT, of_engine.REFUSED)
    else:
        others = {*vllm_flags.DEFAULTS, *of_engine.DEFAULTS}
        own = set(names) - others
        tables = (vllm_flags.WITHOUT_EFFECT, vllm_flags.REFUSED)
    ignored, refused = tables
    silent = {name for name, taken in ignored.items() if {True, False} <= set(_plain(taken))}
    silent |= set(of_engine.SILENT)
    return "\n\n".join([
        f"Of the {len(names)} of vLLM {noted['version']} these work:",
        _listed(name for name in names if name in own),
        "These are accepted with any value, since nothing here depends on it:",
        _listed(name for name in names if name in silent),
        "These have no effect. A value that is not in the table gets one warning:",
        _rows(("no effect", "without a warning"), [
            (name, _values(ignored[name])) for name in names if name in set(ignored) - silent
        ]),
        "These are refused with any value that is not in the table:",
        _rows(("refused", "accepted", "why"), [
            (name, _values(refused[name][0]), refused[name][1]) for name in names if name in refused
        ]),
    ])  # fmt: skip


def _plain(taken: tuple[Any, ...]) -> list[Any]:
    return [one for one in taken if isinstance(one, bool)]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{one}`" for one in names)


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *((f"`{name}`", *rest) for name, *rest in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _values(taken: tuple[Any, ...]) -> str:
    return ", ".join(f"`{one!r}`" for one in taken)
