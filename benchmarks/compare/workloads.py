"""The seven workloads. Lengths are the same in every pass, tokens are new in each.

So a compiled shape of the unmeasured first pass fits the measured ones, and no prefix cache of an
earlier pass helps. Tokens are random: their values cost nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.workload import sharegpt_requests

LENGTH_SEED = 0
FIRST_TOKEN = 3  # past the usual special tokens
# For servers: streams that decode, and long prompts that come meanwhile, their tokens and when.
DECODING, LONG_PROMPT, LONG_AT_S = 8, 1800, (0.8, 2.0)


@dataclass(frozen=True)
class Job:
    """One request of a workload.

    Attributes:
        prompt: Token ids.
        output_len: Tokens to generate for each sample, end of sequence ignored.
        arrival_s: Seconds after the start of the pass.
        n: Samples; more than one are drawn at temperature 1, else greedy.
        adapter: Number of its LoRA adapter among those in the peer's settings; 0: it has none.
    """

    prompt: list[int]
    output_len: int
    arrival_s: float = 0.0
    n: int = 1
    adapter: int = 0


@dataclass(frozen=True)
class Scale:
    """How much of a workload is run.

    Attributes:
        requests: Number of requests of W3 and W4.
        rate: Arrivals a second in W4.
        vocab_size: V.
        divide: Lengths and numbers of requests are divided by this (`--smoke`).
    """

    requests: int = 64
    rate: float = 0.15
    vocab_size: int = 49152
    divide: int = 1


Shape = tuple[int, int]  # prompt and output length


def _uniform(count: int, prompt: Shape, output: Shape) -> list[Shape]:
    """`count` lengths, each uniform within its two ends, both included."""
    rng = np.random.default_rng(LENGTH_SEED)
    prompts = rng.integers(prompt[0], prompt[1] + 1, size=count)
    outputs = rng.integers(output[0], output[1] + 1, size=count)
    return list(zip(prompts.tolist(), outputs.tolist(), strict=True))


def _jobs(shapes: list[Shape], scale: Scale, seed: int, n: int = 1, shared: int = 0) -> list[Job]:
    """Random prompts of these lengths, behind `shared` tokens that are the same for all."""
    rng = np.random.default_rng([seed, len(shapes)])
    small = scale.divide
    prefix = rng.integers(FIRST_TOKEN, scale.vocab_size, size=shared // small).tolist()
    jobs = []
    for prompt, output in shapes[: -(-len(shapes) // small)]:
        length = max(1, prompt // small)
        own = rng.integers(FIRST_TOKEN, scale.vocab_size, size=length).tolist()
        jobs.append(Job(prefix + own, max(2, output // small), n=n))
    return jobs


def _sharegpt(scale: Scale, seed: int, rate: float) -> list[Job]:
    trace = sharegpt_requests(
        scale.requests,
        request_rate=rate,
        vocab_size=scale.vocab_size,
        max_model_len=2048,
        seed=LENGTH_SEED,
    )
    shapes = [(len(one.prompt_token_ids), one.output_len) for one in trace]
    jobs = _jobs(shapes, scale, seed)
    return [
        replace(job, arrival_s=one.arrival_s / scale.divide)
        for job, one in zip(jobs, trace, strict=False)
    ]


WORKLOADS: dict[str, tuple[str, Callable[[Scale, int], list[Job]]]] = {
    "W1": (
        "32 requests at once, prompts and outputs of 16 to 128 tokens",
        lambda scale, seed: _jobs(_uniform(32, (16, 128), (16, 128)), scale, seed),
    ),
    "W2": (
        "one request, 64 tokens in, 128 out",
        lambda scale, seed: _jobs([(64, 128)], scale, seed),
    ),
    "W3": (
        "requests of ShareGPT lengths, all at once",
        lambda scale, seed: _sharegpt(scale, seed, float("inf")),
    ),
    "W4": (
        "requests of ShareGPT lengths, Poisson arrivals",
        lambda scale, seed: _sharegpt(scale, seed, scale.rate),
    ),
    "W5": (
        "32 requests, a shared prefix of 1,000 tokens, then 16 to 64 of their own, 16 to 64 out",
        lambda scale, seed: _jobs(_uniform(32, (16, 64), (16, 64)), scale, seed, shared=1000),
    ),
    "W6": (
        "one prompt of 4,096 tokens, 256 out",
        lambda scale, seed: _jobs([(4096, 256)], scale, seed),
    ),
    "W7": (
        "4 samples each of 16 prompts of 64 to 256 tokens, 32 to 96 out",
        lambda scale, seed: _jobs(_uniform(16, (64, 256), (32, 96)), scale, seed, n=4),
    ),
}
