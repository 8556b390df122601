"""All fields of an engine's trace, from playground/engine_trace.schema.json: `{{ trace_fields }}`.

The schema says what a field is. What becomes of the check without it is below; a test takes each
field out of every example, and compares the invariants that are then not checked, or fall.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from playground.check_trace import SCHEMA

NOTHING = "nothing: the map alone shows it"
WITHOUT = {
    "about": NOTHING,
    "num_cpu_blocks": "the CPU's pool is empty: a CPU block in a table is refused (exit code 2)",
    "reserved_blocks": "if there are such blocks, I2, I3 and I9 fall",
    "watermark_blocks": "this limit of I18 is not checked",
    "max_num_seqs": "this limit of I18 is not checked",
    "max_num_batched_tokens": "this limit of I18 is not checked",
    "policy": "taken as `fcfs`; with another policy I17 is not checked",
    "complete": "a request that has not ended is a note; with `true`, I20 falls",
    "texts": NOTHING,
    "end": "I9 is not checked",
    "end.free": "I9 is not checked",
    "end.cpu_free": "the CPU's part of I9 is not checked",
    "steps.arrived": "I16 falls if there are queues; I20 knows of no unfinished request",
    "steps.queues": "I5, I16 and I17 are not checked",
    "steps.queues.swapped": "if a request is swapped out, I5 and I16 fall",
    "steps.preempted": "I19 is not checked, nor in I17 the order of preemption",
    "steps.swap_in": "if blocks were swapped in, I13 falls; I14 and I15 do not see it",
    "steps.swap_out": "if blocks were swapped out, I13 falls; I14 and I15 do not see it",
    "steps.copies": "I11 is not checked; if a block was copied, I13 falls",
    "steps.cpu_tables": "if `cpu_refs` counts a block, I1 falls; I5, I6, I13 and I14 do not see "
    "the CPU",
    "steps.refs": "I1 is not checked",
    "steps.cpu_refs": "the CPU's part of I1 is not checked",
    "steps.free": "I2 and I3 are not checked",
    "steps.cpu_free": "the CPU's part of I2 and I3 is not checked",
    "steps.cached": NOTHING,
    "steps.forked": "if a sequence forked, I13 falls: the fork is taken to have the prompt alone",
    "steps.started": "nothing, unless it has a table before it is scheduled (I5)",
    "steps.drawn": "the check does not know the tokens of later steps: I13 and I19 may fall",
    "steps.finished": "no sequence ends: I9 is not checked, I16 and I20 may fall",
    "steps.scheduled.request": "the name of the sequence must be a request's id",
    "steps.scheduled.drafts": "if there were drafts, I13 falls",
    "steps.scheduled.known": "I19 is not checked",
}
"""By optional field."""
INSIDE = ("end", "queues", "steps", "scheduled")
"""Fields whose own fields have rows."""


class Field(NamedTuple):
    """A field of a trace.

    Attributes:
        path: With those that it lies in, as `steps.queues.running`.
    """

    path: str
    says: str
    required: bool


def fields() -> list[Field]:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    return list(_fields(schema, schema["$defs"], ""))


def _fields(schema: dict[str, Any], parts: dict[str, Any], at: str) -> Iterator[Field]:
    for name, one in schema["properties"].items():
        path = f"{at}.{name}" if at else name
        yield Field(path, one.get("description", ""), name in schema.get("required", ()))
        if name in INSIDE:
            inner = one.get("items", one)
            of = inner.get("$ref", "").removeprefix("#/$defs/")
            yield from _fields(parts[of] if of else inner, parts, path)


def trace_fields() -> str:
    rows = ["| field | says | without it |", "|---|---|---|"]
    for one in fields():
        without = "(it must be there)" if one.required else WITHOUT[one.path]
        says = one.says[:1].lower() + one.says[1:] if not one.says.startswith("GPU") else one.says
        rows.append(f"| `{one.path}` | {says.removesuffix('.')} | {without} |")
    return "\n".join(rows)
