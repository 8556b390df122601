"""What a compiled step of several devices says from device to device, and what it copies."""

import re

import jax

from jax_engine.worker.step_shape import StepShape
from jax_engine.worker.worker import Worker
from tests.models.test_decoder import result_bytes

VECTORS = r"norm|bias|sinks|'(scales|places|order)'\]$"  # no numbers or codes of a matrix
DECODE = StepShape(num_tokens=1, num_rows=1, decode_only=True)


def check_exchanges(worker: Worker, *, in_layers: int, shape: StepShape = DECODE) -> None:
    """Holds a step to so many exchanges in the body of its loop over layers, all of them gathers.

    And to one for the embedding and one for the logits, and to no copy of weights or of the cache.
    """
    text = worker.steps.compile(shape, worker.kv_cache.array).as_text()
    exchange = re.compile(r" (all-|collective|reduce-scatter)")
    talks = [line for line in text.splitlines() if exchange.search(line)]
    inside = [line for line in talks if "/while/body/" in line]
    assert len(inside) == in_layers and all("all-gather(" in line for line in inside), inside
    assert len(talks) == in_layers + 2, talks
    made = [line for line in text.splitlines() if line.partition("(")[0].endswith(" copy")]
    assert max(map(result_bytes, made), default=0) < _smallest(worker)


def _smallest(worker: Worker) -> int:
    """Bytes of the smallest matrix of a layer, or of the cache of one, on one device."""
    held = jax.tree.unflatten(worker.steps._structure, worker.steps.weights)
    named = jax.tree_util.tree_leaves_with_path(held)
    of_layers = {path: one for path, one in named if "groups" in jax.tree_util.keystr(path)}
    matrices = (
        one
        for path, one in of_layers.items()
        if one.ndim > 1 and not re.search(VECTORS, jax.tree_util.keystr(path))
    )
    arrays = [*matrices, worker.kv_cache.array]
    return min(one.addressable_shards[0].data.nbytes // len(one) for one in arrays)
