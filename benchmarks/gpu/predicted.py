"""What was predicted of an H100 before the step that measures it ran, by step and place.

Each figure has its arithmetic. It assumes the rates of the first run: the card reads 3.18 TB/s and
multiplies at 680 TFLOP/s. Times of whole steps begin with what that run measured.
"""

from typing import NamedTuple

SEPARATOR = " / "  # of the keys of a path


class Prediction(NamedTuple):
    """A figure, and the reason for it."""

    path: tuple[str, ...]
    value: float
    why: str


_SMALL, _LARGE = ("models", "Llama-3.2-1B"), ("models", "Llama-3.1-8B")
_INT4, _FP8 = ("models", "Llama-3.1-8B int4"), ("models", "Llama-3.1-8B fp8")
_ONE, _MANY = "decode of 1", "decode of 256"
_TORCH = ("peers", "torch.compile, decode of 1, tokens/s")

PREDICTED: dict[str, tuple[Prediction, ...]] = {
    "card": (
        Prediction(
            ("peers", "product of 8192^3, TFLOP/s", "JAX, cuBLAS"), 680, "as in the first run"
        ),
        Prediction(
            ("peers", "product of 8192^3, TFLOP/s", "PyTorch"),
            690,
            "both call cuBLAS, so the same within 3 %; at 798 XLA's choice would be at fault",
        ),
    ),
    "1B": (
        Prediction(
            (*_SMALL, "graphs", _ONE, "PIECEWISE", "ms"),
            1.39,
            "replayed in the first run, where steps queue up and the device is the slower side",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "PIECEWISE", "enqueue_ms"),
            0.8,
            "engine's step 2.07 ms less 0.2 of Python, 0.2 of copies and the sampler's program",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "FULL", "enqueue_ms"),
            0.1,
            "one launch of a graph of 254 nodes, 34 buffers checked, in place of 18 and 16 updates",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "PIECEWISE", "queued_ms"),
            0.6,
            "0.3 alone on an H200; the temporaries move, so 16 updates are of all their kernels",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "FULL", "queued_ms"),
            1.2,
            "0.2 alone on an H200; behind another step its 254 nodes get new addresses, 4 us each",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "FULL", "ms"),
            1.35,
            "16 gaps of about 2 us between graphs are gone; the kernels stay",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "layers unrolled", "ms"),
            1.36,
            "the same kernels in 3 graphs with constant addresses",
        ),
        Prediction(
            (*_SMALL, "graphs", _ONE, "steps on the device", "ms"),
            1.40,
            "as FULL, and the greedy token is found in the program",
        ),
        Prediction(
            (*_SMALL, "graphs", _MANY, "FULL", "ms"),
            2.6,
            "replayed in the first run in 2.61 ms with graphs of layers; the device is the limit",
        ),
        Prediction(
            (*_SMALL, "decode", "tokens_per_s"),
            715,
            "the host's part fits behind the device: 2.07 -> 1.40 ms a step",
        ),
        Prediction(
            (*_SMALL, "throughput", "output_tokens_per_s"),
            46_000,
            "decode steps 5.2 -> 4.2 ms, since the device waits for the host no more: 1.2 times",
        ),
        Prediction(
            (*_SMALL, "prefill", "percent_of_matrix_rate"),
            57,
            "attention 2.5 -> 2.2 ms of 9.5 by the schedule barrier",
        ),
    ),
    "8B": (
        Prediction(
            (*_LARGE, "decode", "tokens_per_s"), 170, "device-bound: 32 gaps of 1 us of 5.92 ms"
        ),
        Prediction(
            (*_LARGE, "throughput", "output_tokens_per_s"),
            10_700,
            "8 % of a mixed step was padding; buckets of 128 tokens leave 1 %",
        ),
        Prediction(
            (*_LARGE, "prefill", "percent_of_matrix_rate"), 80, "attention is 6 % of a prompt"
        ),
    ),
    "8B int4": (
        Prediction(
            (*_INT4, "decode", "tokens_per_s"),
            260,
            "32 layers of 4 products: 12 us for [4096, 4096], 15 to 25 for larger ones, the "
            "rest as in bfloat16: 3.8 ms",
        ),
    ),
    "8B fp8": (
        Prediction(
            (*_FP8, "decode", "tokens_per_s"),
            230,
            "7.5 GB at 75 % of the bandwidth and 1.2 ms of small kernels: 4.3 ms",
        ),
    ),
    "batch invariance": (
        Prediction(
            (*_SMALL, "batch invariant", f"{_ONE}, times"),
            1.10,
            "1.39 ms, of 48 products 3 us later, since sums of parts are a kernel more: 1.53 ms",
        ),
        Prediction(
            (*_SMALL, "batch invariant", f"{_MANY}, times"),
            1.17,
            "products at 450 TFLOP/s in place of 550, +0.25 ms; sums of parts, +0.2 of 2.61 ms",
        ),
    ),
    "torch.compile 1B": (
        Prediction(
            (*_TORCH, "Llama-3.2-1B"),
            640,
            "2.47 GB at 85 % of the bandwidth, 8 kernels a layer of 4 us beside the products",
        ),
    ),
    "torch.compile 8B": (
        Prediction((*_TORCH, "Llama-3.1-8B"), 170, "15 GB at 88 % of the bandwidth, and 0.6 ms"),
    ),
}


def by_path(step: str) -> dict[str, dict[str, object]]:
    """The predictions of a step as the results hold them, before it runs."""
    return {
        SEPARATOR.join(one.path): {"value": one.value, "why": one.why}
        for one in PREDICTED.get(step, ())
    }
