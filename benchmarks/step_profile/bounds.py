"""What the machine could do: bytes over its read bandwidth, or operations over its matrix rate."""

from dataclasses import dataclass

from benchmarks.machine_limits import matrix_rate, read_bandwidth
from jax_engine.models.model_config import ModelConfig


@dataclass(frozen=True)
class Machine:
    """Measured with all cores: bytes read a second, float32 operations a second."""

    bandwidth: float
    matrix_rate: float


def measure_machine() -> Machine:
    return Machine(read_bandwidth(), matrix_rate())


def work(
    config: ModelConfig, queries: int, context: int, sequences: int
) -> dict[str, tuple[int, int]]:
    """(bytes to read, operations) of each part that has a bound, in float32.

    Args:
        queries: New tokens of each sequence.
        context: Positions of each sequence, the new ones included.
    """
    spec = config.spec
    heads, kv_heads = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    width, layers, tokens = spec.width, spec.num_layers, queries * sequences
    ffn = spec.layers[0].mlp.width
    products = {
        "QKV": (layers * width * (heads + 2 * kv_heads), tokens),
        "attention output": (layers * width * heads, tokens),
        "gate and up": (layers * width * 2 * ffn, tokens),
        "down": (layers * width * ffn, tokens),
        "head": (spec.vocab_size * width, sequences),
    }
    found = {name: (4 * weights, 2 * weights * rows) for name, (weights, rows) in products.items()}
    seen = queries * context - queries * (queries - 1) // 2  # pairs of a query and what it sees
    found["attention over pages"] = (
        4 * layers * 2 * kv_heads * context * sequences,
        4 * layers * heads * seen * sequences,
    )
    return found


def bound_ms(machine: Machine, size: int, operations: int) -> float:
    return 1e3 * max(size / machine.bandwidth, operations / machine.matrix_rate)
