"""The parts of a step on the device, and which of them an instruction of XLA belongs to.

The model names its parts with `jax.named_scope`; the compiler keeps the names with every
instruction, and the profiler says when each instruction ran.
"""

import re

# Part by named scope. What has no scope (embedding, positions, the loop over layers) is "rest".
SCOPES = {
    "qkv": "QKV",
    "attention": "attention over pages",
    "attention_output": "attention output",
    "kv_write": "KV write",
    "gate_up": "gate and up",
    "down": "down",
    "norm": "norms and rotary",
    "rotary": "norms and rotary",
    "head": "head",
    "sampling": "sampling",
}
REST = "rest"
DISPATCH = "dispatch"  # nothing of the program runs: it is being started, or its end is noticed
PARTS = (*dict.fromkeys(SCOPES.values()), REST, DISPATCH)

_INSTRUCTION = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = .*$", re.MULTILINE)
_OP_NAME = re.compile(r'op_name="([^"]*)"')


def parts_of_instructions(hlo: str) -> dict[str, str]:
    """Part by instruction name, of a compiled program's text; None of those without any name."""
    found = {}
    for match in _INSTRUCTION.finditer(hlo):
        op_name = _OP_NAME.search(match.group(0))
        if op_name is not None:
            found[match.group(1)] = part_of(op_name.group(1))
    return found


def part_of(op_name: str) -> str:
    """The part named by the outermost known scope in a path such as jit(step)/while/body/qkv."""
    return next((SCOPES[scope] for scope in op_name.split("/") if scope in SCOPES), REST)
