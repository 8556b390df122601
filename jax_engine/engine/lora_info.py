"""Which adapters are in use, as metrics whose labels are what there is to know.

Names are what clients chose, and two requests may mean two versions by one name. Digests of weights
and scaling tell versions apart, as the slots and the prefix cache do.
"""

from collections.abc import Iterable

from jax_engine.core.adapter_slots import AdapterSlots
from jax_engine.engine.request import Request
from jax_engine.metrics import Gauge


def lora_requests_info(max_loras: int, requests: Iterable[Request], now: float) -> Gauge:
    """vLLM's gauge: the names of the adapters of requests that run, and of those that wait.

    Beside its labels are those of the adapters' digests.

    Args:
        requests: All unfinished ones.
        now: Seconds since the epoch, its value.
    """
    names: dict[bool, set[str]] = {True: set(), False: set()}  # of those that run, and wait
    digests: dict[bool, set[str]] = {True: set(), False: set()}
    for one in requests:
        if one.lora is not None and one.group.adapter is not None:
            runs = bool(one.group.adapter_slot)
            names[runs].add(one.lora.lora_name)
            digests[runs].add(one.group.adapter.digest)
    labels = {
        "max_lora": str(max_loras),
        "running_lora_adapters": _listed(names[True]),
        "waiting_lora_adapters": _listed(names[False]),
        "running_lora_digests": _listed(digests[True]),
        "waiting_lora_digests": _listed(digests[False]),
    }
    return Gauge("vllm:lora_requests_info", labels, now)


def lora_slots(slots: AdapterSlots) -> list[Gauge]:
    """How many running requests use each slot that holds an adapter, which its digest names."""
    pinned = slots.pinned()
    return [
        Gauge(
            "jax_engine:lora_slot_requests",
            {"slot": str(slot), "digest": digest},
            pinned.get(digest, 0),
        )
        for digest, slot in sorted(slots.held().items(), key=lambda one: one[1])
    ]


def _listed(names: set[str]) -> str:
    return ",".join(sorted(names))
