"""A server under thousands of requests: what is left afterwards, and was every answer right?

    python -m benchmarks server_soak --requests 10000 --save           a tiny model
    python -m benchmarks server_soak --requests 3000 --smollm2 --save  the default model, float32

Streams and whole answers, with several samples, seeds and stop strings; clients that leave, that
read slowly, that send half of a request, too much, or nonsense. Half of the requests go to servers
whose engine is then killed amid others, the other half to one server whose memory is looked at.
Every answer is compared with that of `LLM.generate`, a part of one with its beginning.
"""

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.registry import Benchmark, Figures, flag
from benchmarks.server_soak.judge import problems
from benchmarks.server_soak.lives import Soak
from benchmarks.soak import CACHED_WORDS, LIMITS
from benchmarks.tiny import write_model
from jax_engine import LLM

WARM_SHARE = 0.2


def soaked(
    settings: dict[str, Any],
    requests: int,
    kills: int,
    max_tokens: int,
    log: Path,
    looks: int,
    words: int = 0,
) -> dict[str, Any]:
    """The soak's figures; "broken" says what was wrong."""
    soak = Soak(settings, max_tokens, log)
    for number in range(kills):
        soak.short_life(requests // 2 // kills)
        print(f"  the engine was killed {number + 1} times", flush=True)
    soak.long_life(requests - requests // 2 // kills * kills, looks, words=words)
    wrong = problems(LLM(**settings), soak.exchanges)
    answered = [(ask, answer) for ask, answer, _ in soak.exchanges if answer.status == 200]
    compared = [one for one in answered if one[0].params is not None]
    return {
        "requests": len(soak.exchanges),
        "kills": soak.kills,
        "broken": soak.broken + wrong,
        "compared_whole": sum(answer.whole for _, answer in compared),
        "compared_in_part": sum(not answer.whole for _, answer in compared),
        "kinds": dict(Counter(ask.kind for ask, _, _ in soak.exchanges)),
        "statuses": {
            str(status): count
            for status, count in Counter(one.status for _, one, _ in soak.exchanges).items()
        },
        **memory(soak.looks),
    }


def memory(looks: dict[int, tuple[float, float]]) -> dict[str, Any]:
    """The growth of both processes after the first fifth of the long life."""
    found: dict[str, Any] = {}
    most = max(looks)
    for number, name in enumerate(("api", "engine")):
        after = [sizes[number] for count, sizes in looks.items() if count >= WARM_SHARE * most]
        found[f"{name}_after_warmup_mib"] = after[0]
        found[f"{name}_growth_percent"] = round(100 * (max(after) / after[0] - 1), 2)
    found["looks"] = {
        f"after {count}": {"api_mib": sizes[0], "engine_mib": sizes[1]}
        for count, sizes in looks.items()
    }
    return found


def settings_of(folder: Path, smollm2: bool) -> dict[str, Any]:
    if smollm2:
        return LIMITS | {"dtype": "float32", "max_model_len": 256, "num_gpu_blocks_override": 256}
    write_model(folder)
    return LIMITS | {"model": str(folder), "load_format": "dummy"}


def run(args: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(Path(folder), args.smollm2)
        log = Path(folder) / "server.log"
        words = 0 if args.smoke else CACHED_WORDS
        return soaked(settings, args.requests, args.kills, 60, log, args.looks, words)


def wrong(found: Figures) -> str:
    broken = found["broken"]
    return "\n".join([f"{len(broken)} wrong", *broken[:10]]) if broken else ""


def files(args: argparse.Namespace, found: Figures) -> dict[str, Figures]:
    name = "server_soak_smollm2" if args.smollm2 else "server_soak"
    return {name: found | {"broken": len(found["broken"])}}


def headline(args: argparse.Namespace, found: Figures) -> dict[str, str]:
    model = "SmolLM2" if args.smollm2 else "a tiny model"
    what = f"a server under {found['requests']:,} requests, its engine killed {found['kills']} "
    what += f"times, {model}: wrong answers; growth of memory, API and engine"
    figure = f"{found['broken']}; {found['api_growth_percent']} %, "
    return {what: f"{figure}{found['engine_growth_percent']} %"}


BENCHMARK = Benchmark(
    run,
    flags=(
        flag("--requests", type=int, default=10_000),
        flag("--kills", type=int, default=10),
        flag("--looks", type=int, default=10, help="at memory, on the way"),
        flag("--smollm2", action="store_true", help="not a tiny model"),
    ),
    smoke={"requests": 40, "kills": 1, "looks": 2},
    headline=headline,
    files=files,
    wrong=wrong,
)
