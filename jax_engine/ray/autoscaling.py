"""How many replicas there should be, by the requests that they have and the KV caches in use.

Ray Serve calls the policy in its controller, with this module pickled by value, and applies its own
delays and factors to the answer (`upscale_delay_s`, `downscale_delay_s`, ...).
"""

import math
from collections.abc import Iterable
from typing import Any

KV_CACHE_USAGE = "kv_cache_usage_perc"  # vLLM's name of the metric; a share, from 0 to 1
SPARE = 0.1  # a replica is given up only if the others would have this share to spare


def wanted_replicas(
    current: int,
    ongoing_requests: float,
    kv_cache_usage: Iterable[float],
    *,
    target_ongoing_requests: float,
    target_kv_cache_usage: float,
    min_replicas: int,
    max_replicas: int,
) -> int:
    """How many replicas carry a load: as many as the requests need, or the KV caches, if more.

    A constant load leads to one number in one step. A load that goes up and down by less than
    `SPARE` around a border does not change the number each time.

    Args:
        current: How many there are.
        ongoing_requests: Requests that wait or run, over all replicas.
        kv_cache_usage: The share of its KV cache that each replica uses.
        target_ongoing_requests: Requests that a replica should have.
        target_kv_cache_usage: The share of its KV cache that a replica should use.
    """
    by_queue = ongoing_requests / target_ongoing_requests
    by_memory = math.fsum(kv_cache_usage) / target_kv_cache_usage
    load = max(by_queue, by_memory)
    more, fewer = math.ceil(load), math.ceil(load * (1 + SPARE))
    wanted = more if more > current else min(current, fewer)
    return min(max(wanted, min_replicas), max_replicas)


class QueueAndKVCachePolicy:
    """`wanted_replicas` as an autoscaling policy of Ray Serve.

    Args:
        target_kv_cache_usage: The share of its KV cache that a replica should use. The requests
            that it should have are Serve's `target_ongoing_requests`.
    """

    def __init__(self, target_kv_cache_usage: float = 0.8) -> None:
        if not 0 < target_kv_cache_usage <= 1:
            raise ValueError(
                f"target_kv_cache_usage must be in (0, 1], got {target_kv_cache_usage}"
            )
        self._target_usage = target_kv_cache_usage

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Serve's `AutoscalingContext` to the number of replicas, and no state."""
        usage = (context.aggregated_metrics or {}).get(KV_CACHE_USAGE, {})
        wanted = wanted_replicas(
            context.target_num_replicas,
            context.total_num_requests,
            usage.values(),
            target_ongoing_requests=context.config.get_target_ongoing_requests(),
            target_kv_cache_usage=self._target_usage,
            min_replicas=context.capacity_adjusted_min_replicas,
            max_replicas=context.capacity_adjusted_max_replicas,
        )
        return wanted, {}
