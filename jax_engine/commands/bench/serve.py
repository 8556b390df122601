"""Sends requests to a server with OpenAI's API, at a rate, and prints how it answered.

    jax-engine bench serve --port 8000 --random-input-len 64 --random-output-len 64 \\
      --num-prompts 100 --request-rate 2 --goodput ttft:1000 tpot:100

TTFT is the time to the first token, TPOT the time for each token behind it, ITL the time between
two events of a stream, E2EL the time to the last token. The normalized latency (the paper's) is the
mean of E2EL over output tokens. Goodput counts only requests within the limits. An unmeasured
request goes first. The server's key is --api-key or JAX_ENGINE_API_KEY; VLLM_API_KEY and
OPENAI_API_KEY count too.
"""

import argparse
import json
from datetime import UTC, datetime
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from jax_engine.commands.api_keys import NAMES, client_key
from jax_engine.commands.bench import datasets
from jax_engine.commands.bench.benchmark_request import (
    BenchmarkRequest,
    Outcome,
    Target,
    arrival_times,
)
from jax_engine.commands.bench.figures import METRICS, block, figures
from jax_engine.errors import ConfigError, JaxEngineError
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer

if TYPE_CHECKING:
    from jax_engine.commands.bench.client import Client


HELP = "of a server with OpenAI's API"
ENDPOINTS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}
SAMPLING = {"temperature": float, "top_p": float, "top_k": int, "min_p": float}
GOODPUT = ("ttft", "tpot", "e2el")


class BenchmarkError(JaxEngineError, RuntimeError):
    """The server cannot be measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add = parser.add_argument_group("the server").add_argument
    add("--backend", choices=[*ENDPOINTS, "vllm"], default="openai", help="(%(default)s)")
    add("--base-url", metavar="URL", help="of the server, in place of --host and --port")
    add("--host", default="127.0.0.1", help="(%(default)s)")
    add("--port", type=int, default=8000, help="(%(default)s)")
    add("--endpoint", metavar="PATH", help="(the backend's: /v1/completions or chat/completions)")
    add("--model", metavar="NAME", help="(the first that the server lists)")
    add("--api-key", metavar="KEY", help=f"or a variable: {NAMES} or OPENAI_API_KEY")
    add("--tokenizer", metavar="MODEL", help="path or name that tokens are counted with (--model)")
    datasets.add_arguments(parser, ("random", "sharegpt", "custom"))
    add = parser.add_argument_group("the load").add_argument
    add("--request-rate", type=float, default=float("inf"), help="a second (inf: all at once)")
    add("--burstiness", type=float, default=1.0, help="1: Poisson; less: bursts (%(default)s)")
    add("--max-concurrency", type=int, metavar="N", help="requests open at once (any)")
    add("--num-warmups", type=int, default=0, metavar="N", help="unmeasured requests (%(default)s)")
    add("--ignore-eos", action="store_true", help="outputs have their full length (random: always)")
    for name, kind in SAMPLING.items():
        add(f"--{name.replace('_', '-')}", type=kind, help="of the requests (the server's default)")
    add = parser.add_argument_group("the results").add_argument
    add("--percentile-metrics", default="ttft,tpot,itl", metavar="NAMES", help="(%(default)s)")
    add("--metric-percentiles", default="99", metavar="PERCENT", help="(%(default)s)")
    add("--goodput", nargs="+", default=[], metavar="NAME:MS", help="such as ttft:1000 tpot:100")
    add("--save-result", action="store_true", help="write the figures to a JSON file")
    add("--save-detailed", action="store_true", help="and those of each request")
    add("--result-dir", type=Path, default=Path(), metavar="FOLDER", help="(this one)")
    add("--result-filename", metavar="FILE", help="(made of the backend, rate, model and time)")


def run(args: argparse.Namespace) -> int:
    """Measures; returns 1 if no request had an answer."""
    goodput, metrics, percentiles = check(args)
    import uvloop  # takes half of the time for each event

    return uvloop.run(_measure(args, goodput, metrics, percentiles))


def check(args: argparse.Namespace) -> tuple[dict[str, float], list[str], list[float]]:
    """Goodput's limits, metrics and percentiles.

    Raises:
        ConfigError: a flag is out of range.
    """
    datasets.check(args)
    for name in ("request_rate", "burstiness"):
        if not getattr(args, name) > 0:
            flag = name.replace("_", "-")
            raise ConfigError(f"--{flag} must be above 0, got {getattr(args, name)}")
    if args.max_concurrency is not None and args.max_concurrency < 1:
        raise ConfigError(f"--max-concurrency must be at least 1, got {args.max_concurrency}")
    if args.num_warmups < 0:
        raise ConfigError(f"--num-warmups must be at least 0, got {args.num_warmups}")
    metrics = args.percentile_metrics.split(",")
    for one in metrics:
        if one not in METRICS:
            raise ConfigError(f"--percentile-metrics: {one!r} is not one of {', '.join(METRICS)}")
    try:
        percentiles = [float(one) for one in args.metric_percentiles.split(",")]
        good = [0 <= one <= 100 for one in percentiles]
    except ValueError:
        good = [False]
    if not all(good):
        raise ConfigError(
            f"--metric-percentiles must be numbers in [0, 100], got {args.metric_percentiles!r}"
        )
    return _limits(args.goodput), metrics, percentiles


def _limits(pairs: list[str]) -> dict[str, float]:
    found = {}
    for pair in pairs:
        name, _, limit = pair.partition(":")
        try:
            value = float(limit)
        except ValueError:
            value = -1.0
        if name not in GOODPUT or not value >= 0:
            known = ", ".join(GOODPUT)
            raise ConfigError(f"--goodput: {pair!r} is not NAME:MILLISECONDS, NAME one of {known}")
        found[name] = value
    return found


async def _measure(
    args: argparse.Namespace,
    goodput: dict[str, float],
    metrics: list[str],
    percentiles: list[float],
) -> int:
    from jax_engine.commands.bench.client import Client, replay

    base = _base_url(args)
    backend = "openai" if args.backend == "vllm" else args.backend
    key = client_key(args.api_key, "OPENAI_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with Client(Target(base, ""), max_concurrency=1) as asker:
        card = {} if args.model and args.tokenizer else await _card(asker, base, headers)
    model = args.model or str(card["id"])
    asks = datasets.load(args, _tokenizer(args, card, model))
    random = args.dataset_name == "random" or str(args.dataset_path).endswith(".csv")
    extra = {n: getattr(args, n) for n in SAMPLING if getattr(args, n) is not None}
    extra |= {"ignore_eos": True} if args.ignore_eos or random else {}
    url = base + (args.endpoint or ENDPOINTS[backend])
    target = Target(url, model, backend == "openai-chat", extra, headers)
    async with Client(target, max_concurrency=args.max_concurrency) as client:
        await _first(client, asks[0])
        await replay(client, asks[:1] * args.num_warmups, [0.0] * args.num_warmups)
        rng = np.random.default_rng([args.seed, 1])
        times = arrival_times(len(asks), args.request_rate, args.burstiness, rng)
        outcomes, duration = await replay(client, asks, times)
    found = figures(outcomes, duration, percentiles=percentiles, goodput=goodput)
    for error in {one.error: None for one in outcomes if one.error}:
        print(f"failed: {error}")
    shown = {"rate": args.request_rate, "max_concurrency": args.max_concurrency}
    print(block(found, metrics, percentiles, **shown))
    if args.save_result or args.save_detailed:
        print(f"wrote {save(args, model, found, outcomes)}")
    return 0 if found["completed"] else 1


def _base_url(args: argparse.Namespace) -> str:
    url = args.base_url or f"http://{args.host}:{args.port}"
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"--base-url must begin with http:// or https://, got {url!r}")
    return str(url).rstrip("/")


async def _card(asker: "Client", base: str, headers: dict[str, str]) -> dict[str, Any]:
    """What the server says of its first model."""
    try:
        found: dict[str, Any] = (await asker.get_json(f"{base}/v1/models", headers))["data"][0]
    except Exception as error:
        raise BenchmarkError(
            f"{base}/v1/models does not say which model is served ({error}). Give --model and "
            "--tokenizer"
        ) from error
    return found


def _tokenizer(args: argparse.Namespace, card: dict[str, Any], model: str) -> Tokenizer:
    """The tokenizer of --tokenizer; else of the model's name, or of the server's path of it."""
    from jax_engine.commands.serve_flags import DEFAULT_NAME

    root = card.get("root")
    names = [args.tokenizer] if args.tokenizer else [root, model]
    for name in names:
        try:
            return load_tokenizer(None if name == DEFAULT_NAME else name)
        except JaxEngineError as error:
            problem = error
    raise BenchmarkError(
        f"no tokenizer of {' or '.join(map(repr, names))}: give --tokenizer. {problem}"
    ) from problem


async def _first(client: "Client", ask: BenchmarkRequest) -> None:
    """A request that is not measured.

    Raises:
        BenchmarkError: it has no answer, so all others would have none.
    """
    outcome = await client.ask(ask)
    if outcome.error is not None:
        raise BenchmarkError(f"the first request failed: {outcome.error}")


def save(
    args: argparse.Namespace, model: str, found: dict[str, Any], outcomes: list[Outcome]
) -> Path:
    """Writes the figures with what they are of; returns where."""
    date = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    rate = "inf" if isinf(args.request_rate) else args.request_rate
    content = {
        "date": date,
        "backend": args.backend,
        "model_id": model,
        "tokenizer_id": args.tokenizer or model,
        "num_prompts": args.num_prompts,
        "request_rate": rate,
        "burstiness": args.burstiness,
        "max_concurrency": args.max_concurrency,
        **found,
    }
    if args.save_detailed:
        content |= {
            "input_lens": [one.num_prompt for one in outcomes],
            "output_lens": [one.num_output for one in outcomes],
            "ttfts": [one.time_to_first if one.arrived else 0.0 for one in outcomes],
            "itls": [one.between for one in outcomes],
            "errors": [one.error or "" for one in outcomes],
        }
    short = model.rstrip("/").rpartition("/")[2]
    name = args.result_filename or f"{args.backend}-{rate}qps-{short}-{date}.json"
    path: Path = args.result_dir / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content) + "\n", "utf-8")
    except OSError as error:
        raise BenchmarkError(f"the result cannot be written: {error}") from error
    return path
