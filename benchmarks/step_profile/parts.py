"""The parts of a step on the device, and which of them an instruction of XLA belongs to.

The model names its parts with `jax.named_scope`; the compiler keeps the names with every
instruction, and the profiler says when each instruction ran.
"""

import re
from collections import Counter

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

_COMPUTATION = re.compile(r"^(ENTRY )?%?[\w.-]+ \(.*\{$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.-]+) = ")
_OP_NAME = re.compile(r'op_name="([^"]*)"')


def parts_of_instructions(hlo: str) -> dict[str, str]:
    """Part by instruction name, of a compiled program's text.

    Passes of the compiler lose some names. Such an instruction belongs to what most of its
    computation (a loop's body, a branch) belongs to; in the main one, a product is the head's.
    """
    found: dict[str, str] = {}
    nameless: list[str] = []
    known: Counter[str] = Counter()
    is_main = False
    for line in [*hlo.splitlines(), "end (){"]:
        instruction = _INSTRUCTION.match(line)
        if instruction is None:
            computation = _COMPUTATION.match(line)
            if computation is not None:
                most = known.most_common(1)[0][0] if known and not is_main else REST
                found |= dict.fromkeys(nameless, most)
                nameless, known = [], Counter()
                is_main = computation.group(1) is not None
            continue
        name, op_name = instruction.group(1), _OP_NAME.search(line)
        if op_name is not None:
            found[name] = part_of(op_name.group(1))
            known[found[name]] += 1
        elif is_main and " dot(" in line:
            found[name] = SCOPES["head"]
        else:
            nameless.append(name)
    return found


def part_of(op_name: str) -> str:
    """The part named by the outermost known scope in a path such as jit(step)/while/body/qkv."""
    return next((SCOPES[scope] for scope in op_name.split("/") if scope in SCOPES), REST)
