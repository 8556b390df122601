"""What differs between devices besides the kernels: memory, dtypes, options of XLA."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from jax_engine.config.engine_config import CudagraphMode
from jax_engine.host_memory import ram_bytes
from pallas_kernels.backends import choose_backend
from pallas_kernels.device import gfx_version, target_device

# XLA's options for a step on a GPU, by what becomes a CUDA graph. Without options XLA makes one of
# each layer, because the host runs the loop over layers, and updates it before each launch, because
# each layer reads other slices of the weights. In "FULL" the loop is in the graph, turn after turn.
_COMMAND_BUFFERS = "xla_gpu_enable_command_buffer"
GRAPH_OPTIONS: dict[CudagraphMode, dict[str, Any]] = {
    "NONE": {_COMMAND_BUFFERS: ""},
    "PIECEWISE": {},
    "FULL": {
        _COMMAND_BUFFERS: (
            "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION"
        ),
        "xla_gpu_graph_min_graph_size": 1,
        "xla_gpu_command_buffer_unroll_loops": True,
    },
}


class Device(NamedTuple):
    """What an engine must know about a device.

    Attributes:
        platform: JAX's name of it: "cpu", "gpu", "tpu".
        auto_dtype: the dtype that `dtype="auto"` stands for.
        in_host_memory: whether its arrays lie in the host's memory. The user's programs need that
            memory too, so the KV cache gets a share of it, and the engine checks what fits.
        slices_are_copied: whether XLA copies what a scan slices before it multiplies by it.
        bits_by_shape: whether the bits of XLA's sums over rows, and of exp and its like, depend on
            the number of rows, in ways that `equal_bits` avoids.
        branches_wait: whether the host waits, in the middle of a program, until the device knows
            which branch of a `lax.cond` to take.
        bias_rows: rows behind the ranks of an adapter's B. The first has the biases. A GPU copies
            whole swizzled tiles of 8.
        logits_are_slow: whether logits that nobody samples from take time worth a branch.
        served_tokens: the most tokens of a server's step if the user names no other number.
            A long step delays every stream that decodes in it.
        look_ahead_tokens: the most tokens of prompts in a step during which the next one is
            planned. During a longer one nothing is: requests that come meanwhile join the next
            step. On a CPU the host's time is short beside such a step.
        accepts_guesses: whether a draft model goes on before the host knows which of its guesses
            were right. It computes some tokens more for that, which a CPU would wait for.
        mixed_tokens: the sizes that steps with prompts are padded to. A larger step takes the last
            one, doubled until it fits. Each size is a program to compile.
        memory_share: the share of its memory that an engine takes if the user names no other.
        float32_precision: JAX's name of the precision at which products of float32 do not round
            their inputs; None where none does. A GPU would round to the 10 bits of TF32.
        invariance: whether a row's bits depend on the number of rows beside it. "always": never;
            "asked": only unless `batch_invariant` asks; "never": they may, whatever is asked.
        compiler_options: XLA's, for a step. On a GPU the scan over layers must not copy each
            layer's weights out of their stack before it multiplies by them, which would triple the
            traffic of decoding. XLA reads them where they are in products by cuBLAS, not in those
            that it makes with Triton.
    """

    platform: str
    auto_dtype: str = "bfloat16"
    in_host_memory: bool = False
    slices_are_copied: bool = False
    bits_by_shape: bool = False
    branches_wait: bool = False
    bias_rows: int = 1
    logits_are_slow: bool = False
    served_tokens: int = 2048
    look_ahead_tokens: int = 2**31
    accepts_guesses: bool = False
    mixed_tokens: tuple[int, ...] = (32, 64, 128, 256, 512, 768, 1024)
    memory_share: float = 0.9
    float32_precision: str | None = "highest"
    invariance: Literal["always", "asked", "never"] = "never"
    compiler_options: dict[str, Any] = {}  # noqa: RUF012  nobody writes it

    def step_options(self, mode: CudagraphMode, *, decode_only: bool) -> dict[str, Any]:
        """XLA's options for a step; `mode` makes no difference where there are no CUDA graphs.

        AMD GPUs have graphs, but none of a whole step: "FULL" is "PIECEWISE" there.
        """
        if self.platform != "gpu":
            return self.compiler_options
        if mode == "FULL_DECODE_ONLY":
            mode = "FULL" if decode_only else "NONE"
        elif mode == "FULL_AND_PIECEWISE":
            mode = "FULL" if decode_only else "PIECEWISE"
        if mode == "FULL" and gfx_version() is not None:
            mode = "PIECEWISE"  # the loop stays outside: FULL makes more graphs of a layer
        return self.compiler_options | GRAPH_OPTIONS[mode]


DEVICES = (
    Device(
        "cpu",
        auto_dtype="float32",
        in_host_memory=True,
        slices_are_copied=True,
        bits_by_shape=True,
        logits_are_slow=True,
        served_tokens=512,
        look_ahead_tokens=64,
        memory_share=0.05,
        float32_precision=None,
        invariance="always",
    ),
    Device(
        "gpu",
        branches_wait=True,
        bias_rows=8,
        accepts_guesses=True,
        invariance="asked",
        # Products take as long as their padded tokens. Above 1,024 at most an eighth is padding.
        mixed_tokens=(
            *(32, 64, 128),
            *range(256, 2048, 128),
            *range(2048, 4096, 256),
            *range(4096, 8193, 512),
        ),
        compiler_options={"xla_gpu_enable_triton_gemm": False},
    ),
)


def this_device() -> Device:
    """JAX's default device, which may be one that is only described, to compile for it."""
    platform = str(target_device().platform)
    known = {device.platform: device for device in DEVICES}
    return known.get(platform) or Device(platform)


def lacks_invariance() -> str | None:
    """What this device lacks for `batch_invariant`; None if its kernels have it."""
    device = this_device()
    if device.invariance == "never":
        return f"only CPUs and NVIDIA GPUs have it (the device is a {device.platform})"
    gfx = gfx_version()
    if device.invariance == "asked" and gfx is not None:
        # Its compiler makes another kernel of the sum behind log-probabilities for one row.
        return f"only CPUs and NVIDIA GPUs have it (the device is an AMD {gfx})"
    try:
        choose_backend("triton" if device.invariance == "asked" else None)
    except ValueError as error:
        return str(error)
    return None


@contextmanager
def exact_products(dtype: DTypeLike) -> Iterator[None]:
    """Within it a model of float32 is traced so that its products are of float32, on any device.

    A user who has set `jax_default_matmul_precision` has chosen.
    """
    precision = this_device().float32_precision
    chosen = jax.config.jax_default_matmul_precision is not None
    if precision is None or chosen or jnp.dtype(dtype) != jnp.float32:
        yield
        return
    with jax.default_matmul_precision(precision):
        yield


def memory_bytes() -> int:
    """How much memory this device has: of a CPU, how much of the RAM this process may have."""
    if this_device().in_host_memory:
        return ram_bytes()
    return int(target_device().memory_stats()["bytes_limit"])
