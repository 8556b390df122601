"""A server under thousands of requests: what is left afterwards, and was every answer right?

    python -m benchmarks.server_soak --requests 10000 --save           a tiny model
    python -m benchmarks.server_soak --requests 3000 --smollm2 --save  the default model, float32

Streams and whole answers, with several samples, seeds and stop strings; clients that leave, that
read slowly, that send half of a request, too much, or nonsense. Half of the requests go to servers
whose engine is then killed amid others, the other half to one server whose memory is looked at.
Every answer is compared with that of `LLM.generate`, a part of one with its beginning.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.report import write_result
from benchmarks.server_soak.judge import problems
from benchmarks.server_soak.lives import Soak
from benchmarks.soak import CACHED_WORDS, LIMITS, write_model
from jax_engine import LLM

LOOKS, WARM_SHARE = 10, 0.2


def run(
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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--smollm2", action="store_true", help="not a tiny model")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_of(Path(folder), args.smollm2)
        log = Path(folder) / "server.log"
        result = run(settings, args.requests, args.kills, 60, log, LOOKS, CACHED_WORDS)
    broken = result["broken"]
    print(f"{ {key: one for key, one in result.items() if key not in ('broken', 'looks')} }")
    print(f"{len(broken)} wrong in {time.monotonic() - started:.0f} s", *broken[:10], sep="\n")
    if args.save:
        result["broken"] = len(broken)
        model, name = ("SmolLM2", "_smollm2") if args.smollm2 else ("a tiny model", "")
        what = f"a server under {result['requests']:,} requests, its engine killed "
        what += f"{result['kills']} times, {model}: wrong answers; growth of memory, API and engine"
        figure = f"{len(broken)}; {result['api_growth_percent']} %, "
        figure += f"{result['engine_growth_percent']} %"
        write_result(f"server_soak{name}", result, arguments=args, headline={what: figure})
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
