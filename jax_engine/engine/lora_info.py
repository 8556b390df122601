"""Which adapters are in use as a metric, whose labels are what there is to know."""

from collections.abc import Iterable

from jax_engine.engine.request import Request
from jax_engine.metrics import Gauge


def lora_requests_info(max_loras: int, requests: Iterable[Request], now: float) -> Gauge:
    """vLLM's gauge: the names of the adapters of requests that run, and of those that wait.

    Args:
        requests: All unfinished ones.
        now: Seconds since the epoch, its value.
    """
    running: set[str] = set()
    waiting: set[str] = set()
    for one in requests:
        if one.lora is not None:
            (running if one.group.adapter_slot else waiting).add(one.lora.lora_name)
    labels = {
        "max_lora": str(max_loras),
        "running_lora_adapters": ",".join(sorted(running)),
        "waiting_lora_adapters": ",".join(sorted(waiting)),
    }
    return Gauge("vllm:lora_requests_info", labels, now)
