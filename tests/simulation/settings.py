"""What is drawn once for a simulation: the engine, its device, and how things go."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.simulation.device import Speed

GUESSES: list[dict[str, Any] | None] = [
    None,
    {"prompt_lookup_min": 1, "prompt_lookup_max": 2, "enable_adaptive_verification": False},
    {"method": "suffix", "num_speculative_tokens": 9},
]
MODES = [None, "recompute", "swap", "auto", "auto"]


@dataclass(frozen=True)
class Settings:
    """
    Attributes:
        num_blocks, num_cpu_blocks: Sizes of the pools.
        config: Fields of `EngineConfig`.
        watermark: As of `BlockManager`.
        has_text: Whether there is a tokenizer.
        has_edits: Whether requests ask for what needs steps of another shape (`min_tokens`).
        speed: The device's speed.
        fault_rate: Share of the calls at each boundary that raise.
        full_rate: Share of the requests for host memory that are refused.
        num_actions: Number of clients' actions, until nobody comes any more.
        busy: From 0 (one request at a time) to 1 (far more than fit).
        has_adapters: Whether requests may have adapters, and the device slots for them.
    """

    num_blocks: int
    num_cpu_blocks: int
    config: dict[str, Any]
    watermark: float
    has_text: bool
    has_edits: bool
    speed: Speed
    fault_rate: float
    full_rate: float
    num_actions: int
    busy: float
    has_adapters: bool = False

    @property
    def max_model_len(self) -> int:
        return int(self.config["max_model_len"])


def draw_settings(chance: Random) -> Settings:
    """Small pools in which a sequence may take most of the blocks, so that groups preempt."""
    crowded = chance.random() < 0.3  # so that a step may do nothing but swap
    scheduling = chance.choice(["unified", "unified", "unified", "sosp", "sosp-mixed"])
    scheduling = "unified" if crowded else scheduling
    unified = scheduling == "unified"
    chunked = unified and chance.random() < 0.8
    block_size = chance.choice([1, 2, 3, 4, 8])
    num_blocks = chance.randint(4, 20)
    max_num_seqs = chance.choice([2, 6, 10, 16])
    max_model_len = min(60, max(6, block_size * num_blocks * chance.choice([2, 3, 4]) // 5))
    least = chance.choice([1, 4, 16]) if chunked else max(max_model_len, max_num_seqs)
    config = {
        "scheduling": scheduling,
        "scheduling_policy": chance.choice(["fcfs", "fcfs", "priority"]),
        "preemption_mode": chance.choice(["swap"] if crowded else MODES),
        "block_size": block_size,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": least + chance.randint(0, 16),
        "enable_prefix_caching": unified and chance.random() < 0.6,
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": chance.choice([0, 0, 1, 3]) if chunked else 0,
        "async_scheduling": unified and (crowded or chance.random() < 0.7),
        "seed": chance.choice([0, 1, 2**64 - 1]),
    }
    settings = Settings(
        num_blocks=num_blocks,
        num_cpu_blocks=40 if crowded else chance.choice([40, 40, 8, 3, 0]),
        config=config,
        watermark=chance.choice([0.0, 0.01, 0.1]),
        has_text=chance.random() < 0.4,
        has_edits=True,
        speed=Speed(
            step=chance.randint(1, 40),
            token=chance.randint(0, 5),
            block=chance.choice([0, 1, 4, 40]),
            jitter=chance.choice([0, 5]),
        ),
        fault_rate=chance.choice([0.0, 0.0, 0.0, 0.002, 0.02]),
        full_rate=chance.choice([0.0, 0.0, 0.3]),
        num_actions=chance.randint(40, 160),
        busy=1.0 if crowded else chance.random(),
    )
    config["speculative_config"] = chance.choice(GUESSES) if unified else None
    has_adapters = chance.random() < 0.5
    config |= {"enable_lora": has_adapters, "max_loras": chance.choice([1, 2, 3])}
    return replace(settings, has_adapters=has_adapters)
