"""`generate_file`: a file of requests answered by engines in actors of `ray.data`.

The files are those of `jax-engine generate`, and so are the answers, whatever the number of actors:
a file that one of the two has begun, the other one finishes. An actor that ends is started again,
and its batch with it. What is in the output when the driver ends is not asked again.
"""

import asyncio
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from jax_engine.checks import shown
from jax_engine.commands.batch_file import (
    MAX_LINE,
    Line,
    Output,
    Reader,
    answered,
    refused,
    same_file,
)
from jax_engine.commands.batch_run import ask
from jax_engine.commands.serve import engine_args, server_settings
from jax_engine.errors import ConfigError, EngineDeadError
from jax_engine.ray.llm_config import LLMConfig, need_ray

RESTARTS = 3  # of an actor, and as many further tries of a batch


def generate_file(
    llm_config: LLMConfig,
    source: str | Path,
    target: str | Path,
    *,
    concurrency: int = 1,
    batch_size: int = 256,
    overwrite: bool = False,
    **ray_remote_args: Any,
) -> int:
    """Answers the requests of a file that have no answer yet; returns how many it has answered.

    Args:
        llm_config: The model, and the settings of its engines.
        source: Requests, one a line, as `jax-engine generate` reads them.
        target: Their answers. A run goes on with a file that is there.
        concurrency: How many actors there are, each with an engine.
        batch_size: How many requests an engine is given at a time.
        overwrite: Begin anew if the target exists.
        ray_remote_args: What an actor needs, as for `map_batches`: "num_cpus", "num_gpus",
            "runtime_env", ...

    Raises:
        ConfigError: An argument is wrong, or a file cannot be had.
        MissingPackageError: `ray.data` is not installed.
        EngineDeadError: An actor could not be started, or has ended several times. The lines that
            are answered stay.
    """
    for name, value in (("concurrency", concurrency), ("batch_size", batch_size)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{name} must be an integer of at least 1, got {shown(value)}")
    if same_file(str(source), str(target)):
        raise ConfigError(f"the input and the output are the same file: {source}")
    need_ray("generate_file", "ray.data")
    config = LLMConfig.of(llm_config)
    with _opened(source) as file:
        output = Output.open(str(target), overwrite=overwrite)
        try:
            rows = list(_rows(file, output))
            return _answer(config, rows, output, concurrency, batch_size, ray_remote_args)
        finally:
            output.close()


def _opened(source: str | Path) -> BinaryIO:
    try:
        return Path(source).expanduser().open("rb")
    except OSError as error:
        raise ConfigError(f"the input {source}: {error.strerror}") from error


def _rows(file: BinaryIO, output: Output) -> Iterator[dict[str, Any]]:
    """The lines without an answer, as rows of a dataset. One that is no request is refused."""
    for line in Reader(file, {}, as_text=False):
        if output.has(line):
            continue
        output.expect(line)
        if line.problem is not None:
            output.write(line, refused(line))
            continue
        yield {
            "number": line.number,
            "of_batch": line.of_batch,
            "custom_id": line.custom_id or "",
            "url": line.url,
            "body": msgspec.json.encode(line.body),
        }


def _answer(
    config: LLMConfig,
    rows: list[dict[str, Any]],
    output: Output,
    concurrency: int,
    batch_size: int,
    remote: dict[str, Any],
) -> int:
    import ray

    if not rows:
        return 0
    if config.accelerator_type is not None:
        gpus = {"num_gpus": config.num_gpus(), "accelerator_type": config.accelerator_type}
        remote = {**gpus, **remote}
    size = min(batch_size, -(-len(rows) // concurrency))  # each engine has something to do
    blocks = -(-len(rows) // size)
    with warnings.catch_warnings(action="ignore"):  # Ray 2.64 is to do without limits of restarts
        data = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            EngineActor,
            fn_constructor_args=[config],
            batch_size=size,
            compute=ray.data.ActorPoolStrategy(size=min(concurrency, blocks)),
            max_restarts=RESTARTS,
            max_task_retries=RESTARTS,
            **remote,
        )
    count = 0
    try:
        for row in data.iter_rows():
            output.write(Line(row["number"], row["of_batch"]), row["answer"])
            count += 1
    except ray.exceptions.RayError as error:
        raise EngineDeadError(
            f"an actor could not be started, or has ended {RESTARTS + 1} times; {count} lines are "
            f"answered, and the same call goes on with the rest: {error}"
        ) from error
    return count


class EngineActor:
    """An engine, and the app of the server that asks it: what each actor of a dataset has.

    Args:
        config: The model, and the engine's settings.

    Raises:
        JaxEngineError: As `AsyncLLM`.
    """

    def __init__(self, config: LLMConfig) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(config))

    async def _start(self, config: LLMConfig) -> None:
        from jax_engine.serving.api.app import make_app
        from jax_engine.serving.api.service import Service
        from jax_engine.serving.async_llm import AsyncLLM

        args = config.arguments()
        args.max_body_size = 2 * MAX_LINE  # written again, a line may be longer
        settings = server_settings(args)
        self._llm = AsyncLLM.from_engine_args(engine_args(args))
        service = Service(self._llm, settings)
        await service.adapters.load_all(settings.lora_modules)
        self._app = make_app(service)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """The answers to a batch of requests, in its order."""
        columns = [batch[name].tolist() for name in ("number", "of_batch", "custom_id", "url")]
        lines = [
            Line(number, of_batch, custom_id if of_batch else None, url, msgspec.json.decode(body))
            for number, of_batch, custom_id, url, body in zip(*columns, batch["body"], strict=True)
        ]
        answers = self._runner.run(self._answers(lines))
        return {"number": columns[0], "of_batch": columns[1], "answer": answers}

    async def _answers(self, lines: list[Line]) -> list[bytes]:
        return list(await asyncio.gather(*map(self._one, lines)))

    async def _one(self, line: Line) -> bytes:
        status, body = await ask(self._app, line.url, line.body)
        if status >= 500 and self._llm.errored:
            os._exit(1)  # Ray starts the actor again, and gives it this batch once more
        return answered(line, status, body)
