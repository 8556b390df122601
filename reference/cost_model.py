"""How long a step takes: a cost model for the models and GPUs of the paper's Table 1 (6.1).

The simulator needs no model, only the seconds that one would take. A step reads all weights once,
whatever it computes; each token in it is multiplied with them; each decoding sequence reads the
keys and values of its context. So a step's time is linear in four numbers:

    seconds = per_step + per_token * tokens + per_sequence * sequences
              + per_context_token * context + per_moved_token * moved

with the *tokens* computed, the *sequences* they belong to, the *context* read (tokens of KV cache,
summed over decoding sequences) and the tokens of KV cache *moved* between GPU and CPU.

The constants are data-sheet figures of the A100 times an efficiency, with two exceptions. What a
block costs the attention kernel is the slowdown of Figure 18a. What a sequence costs the host was
chosen so that the batches of Figure 13 end at the rates of Figure 12: 30 sequences at 45 ms a
step, 132 at 80 ms, of which weights and KV cache explain two thirds and a half. A token of OPT-13B
takes 2 (K and V) x 40 layers x 5120 numbers x 2 bytes:

>>> opt = TABLE_1["OPT-13B"]
>>> opt.kv_bytes_per_token, opt.num_slots
(819200, 15728)
>>> cost = opt.step_cost()
>>> [round(1000 * x, 4) for x in (cost.per_step, cost.per_token, cost.per_context_token)]
[20.9003, 0.1667, 0.0008]

One sequence decodes a token in 22 ms. 30 sequences with 500 tokens each take 47 ms, together:

>>> round(1000 * cost.seconds(Work(1, 1, 500))), round(1000 * cost.seconds(Work(30, 30, 15000)))
(22, 47)

Many equal decoding steps, in each of which each sequence's context grows by one token, are a sum
in closed form:

>>> one_by_one = sum(cost.seconds(Work(3, 3, 90 + 3 * i)) for i in range(10))
>>> abs(cost.seconds(Work(3, 3, 90), steps=10) - one_by_one) < 1e-12
True
"""

from dataclasses import dataclass

A100_FLOPS = 312e12
COMPUTE_EFFICIENCY = 0.5
BANDWIDTH_EFFICIENCY = 0.8
BLOCK_TOKENS = 3.2
"""Reading a block costs as much as reading so many tokens more: 20 % at B = 16 (Figure 18a)."""
HOST_PER_SEQUENCE_S = 0.0003
ALL_REDUCE_S = 30e-6
"""Two of them in each layer, if there are several GPUs (Megatron's tensor parallelism)."""
PCIE_BYTES_PER_S = 12e9
"""About half of what PCIe 4.0 x16 can do."""
PCIE_LATENCY_S = 10e-6


@dataclass(frozen=True)
class Work:
    """What a step does, as far as it costs time.

    Attributes:
        tokens: computed, of prompts and of decoding sequences.
        sequences: that they belong to.
        context: tokens of KV cache read by decoding sequences.
        moved: tokens of KV cache swapped in or out.
    """

    tokens: int = 0
    sequences: int = 0
    context: int = 0
    moved: int = 0


@dataclass(frozen=True)
class StepCost:
    """The constants of the linear model, in seconds."""

    per_step: float
    per_token: float
    per_sequence: float = 0.0
    per_context_token: float = 0.0
    per_moved_token: float = 0.0

    def seconds(self, work: Work, steps: int = 1) -> float:
        """The time of `steps` steps in a row, the contexts growing by a token each step."""
        growth = work.sequences * steps * (steps - 1) // 2
        return (
            steps * (self.per_step + self.per_token * work.tokens)
            + steps * (self.per_sequence * work.sequences + self.per_moved_token * work.moved)
            + self.per_context_token * (steps * work.context + growth)
        )


@dataclass(frozen=True)
class ModelOnGpus:
    """A column of Table 1. Memory in GB as the table counts them (2**30 bytes)."""

    num_layers: int
    width: int
    num_gpus: int
    bytes_per_s: float
    weights_gb: float
    kv_gb: float

    @property
    def kv_bytes_per_token(self) -> int:
        """A key and a value of `width` float16 numbers in each layer."""
        return 2 * self.num_layers * self.width * 2

    @property
    def num_slots(self) -> int:
        """Tokens that the KV cache has room for."""
        return int(self.kv_gb * 2**30) // self.kv_bytes_per_token

    def step_cost(self, *, paged: bool = True, host: bool = True, block_size: int = 16) -> StepCost:
        """The constants for this model.

        `paged` is False for attention over contiguous memory, `host` for a server without Python.
        """
        bytes_per_s = self.bytes_per_s * self.num_gpus * BANDWIDTH_EFFICIENCY
        flops = A100_FLOPS * self.num_gpus * COMPUTE_EFFICIENCY
        weights = self.weights_gb * 1e9
        reduce_s = 2 * self.num_layers * ALL_REDUCE_S if self.num_gpus > 1 else 0.0
        slower = 1 + BLOCK_TOKENS / block_size if paged else 1.0
        return StepCost(
            per_step=weights / bytes_per_s + reduce_s,
            per_token=weights / flops,  # two operations for a weight of two bytes
            per_sequence=HOST_PER_SEQUENCE_S if host else 0.0,
            per_context_token=slower * self.kv_bytes_per_token / bytes_per_s,
            per_moved_token=self.seconds_to_move(block_size, block_size) / block_size,
        )

    def seconds_to_move(self, num_tokens: int, block_size: int) -> float:
        """Copying the blocks of so many tokens one way, over PCIe.

        A block is a copy of its own for each layer's keys and values, so small blocks are slow to
        move (7.3): the latency of a copy is paid 2 x layers times a block. Each GPU moves its part.
        """
        blocks = -(-num_tokens // block_size)
        part = self.kv_bytes_per_token * block_size / self.num_gpus
        return blocks * (2 * self.num_layers * PCIE_LATENCY_S + part / PCIE_BYTES_PER_S)

    def seconds_to_recompute(self, num_tokens: int) -> float:
        """Computing so many tokens again, as one prompt in a step that is made anyway."""
        return self.step_cost().per_token * num_tokens


TABLE_1 = {
    "OPT-13B": ModelOnGpus(40, 5120, 1, 1.555e12, 26, 12),
    "OPT-66B": ModelOnGpus(64, 9216, 4, 1.555e12, 132, 21),
    "OPT-175B": ModelOnGpus(96, 12288, 8, 2.039e12, 346, 264),
    "LLaMA-13B": ModelOnGpus(40, 5120, 1, 1.555e12, 26, 12),
}
"""Weights and KV cache from Table 1; layers and widths of the models; bandwidth of one GPU from
its data sheet (A100 with 40 GB; OPT-175B on eight with 80 GB)."""
