"""Properties of requests' lives: aborts, names, refusals, samples and seeds; nothing is left."""

from functools import partial

from paged_conformance.engine.histories import examples
from paged_conformance.engine.play import play
from paged_conformance.properties import Property

STORMS = Property(
    name="storms-of-aborts",
    sentence="An abort ends its requests and nobody else's, whatever they are doing; nothing of "
    "them is left, and those that stay get what they get alone.",
    invariant="I22",
    examples=partial(
        examples,
        asks=("stop_ids", "kinds"),
        small=("cache", "budget", "pool"),
        words=("add", "add", "abort", "step"),
        most=6,
        length=24,
    ),
    check=play,
)

REFUSALS = Property(
    name="refusals-leave-no-trace",
    sentence="A request that makes no sense is refused or ends by itself, and nobody notices.",
    invariant="I21",
    examples=partial(examples, words=("add", "step", "wrong"), most=3),
    check=play,
)

SEEDS = Property(
    name="seeds-repeat",
    sentence="A request with a seed gets the same again, in company and after others too.",
    invariant="I37",
    examples=partial(
        examples,
        asks=("seeds", "filters", "draws", "penalties", "bias", "logprobs"),
        small=("cache", "budget"),
        words=("add", "add", "step", "abort"),
    ),
    check=play,
    needs=("seeds",),
)

SAMPLES = Property(
    name="samples-are-complete",
    sentence="A request of n samples gets n outputs with their own ends, those that it gets alone "
    "where it is greedy or has a seed.",
    invariant="I37",
    examples=partial(
        examples,
        asks=("samples", "seeds", "draws", "stop_ids", "kinds"),
        small=("cache", "pool"),
        words=("add", "add", "step", "abort", "drain"),
        most=4,
    ),
    check=play,
    needs=("samples",),
)

PENALTIES = Property(
    name="parameters-are-ones-own",
    sentence="Penalties, biases and temperatures of one request change no other's tokens.",
    examples=partial(
        examples, asks=("penalties", "bias", "draws", "filters", "min_tokens", "seeds"), most=6
    ),
    check=play,
)

EVERYTHING = Property(
    name="everything-together",
    sentence="All of the above, of one engine with one history.",
    examples=partial(
        examples,
        asks=(
            *("seeds", "draws", "filters", "samples", "stop_ids", "stops", "include_stop"),
            *("min_tokens", "kinds", "logprobs", "penalties", "bias", "priorities", "adapters"),
        ),
        small=("pool", "budget", "cache", "speculation"),
        words=("add", "add", "add", "step", "step", "abort", "drain", "flush", "rest"),
        most=6,
        length=24,
    ),
    check=play,
)
