"""Several devices: which numbers of them can share a model, and what each, or each stage, holds."""

import json
from collections.abc import Iterator

from jax_engine.commands.diagnosis.device import ask, why
from jax_engine.commands.diagnosis.finding import Finding, size
from jax_engine.processes.cores import own_cores, split

_ASKED = "jax_engine.worker.shares_of_devices"
_OF_MODEL = "jax-engine doctor --model MODEL says which numbers of devices can share it"


def several(model: str | None = None) -> Iterator[Finding]:
    """
    Args:
        model: A directory, a file or a hub name; None: only what holds for any model.
    """
    cores = len(own_cores())
    yield Finding("on a CPU", f"a process for each of several devices, which share {cores} cores")
    if model is None:
        yield Finding("sizes", _OF_MODEL)
        return
    done = ask(_ASKED, model)
    if done is None or done.returncode != 0:
        reason = "it takes too long" if done is None else why(done)
        yield Finding("sizes", f"not known: {reason}", f"--model {model}: {reason}")
        return
    devices, stages = json.loads(done.stdout.splitlines()[-1])
    for count, weights, kv_cache in devices:
        own = split(list(range(cores)), count)
        threads = f"{len(own[-1])} cores" if own[0] else "all cores"
        yield Finding(
            f"size {count}",
            f"{size(weights)} of weights and {size(kv_cache)} of KV cache a token on each; "
            f"on a CPU {threads}",
        )
    for layers, weights, kv_cache in stages:
        yield Finding(
            f"{len(layers)} stages",
            f"{', '.join(map(str, layers))} layers; at most {size(weights)} of weights and "
            f"{size(kv_cache)} of KV cache a token in one",
        )
