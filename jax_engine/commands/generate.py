"""Answers the requests of a file.

    jax-engine generate -i prompts.jsonl -o answers.jsonl
    jax-engine generate prompts.jsonl answers.jsonl --model ./my-model --max-tokens 200
    jax-engine generate --text - - < prompts.txt           through a pipe
    jax-engine run-batch -i batch.jsonl -o results.jsonl   the same command

A line of the input is {"prompt": ..} or {"messages": [..]} with fields such as "max_tokens", or a
request in OpenAI's batch format (custom_id, method, url, body); with --text, a prompt. Each gets a
line in the output: an answer or an error. Stopped and started again, the command goes on with the
lines that have none.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tqdm import tqdm

from jax_engine.cli import add_config_flag
from jax_engine.commands.answer_flags import add_sampling_flags, check_sampling, sampling_fields
from jax_engine.commands.serve_flags import (
    DEFAULT_NAME,
    add_lora_modules,
    check_given,
    checked_lora_modules,
)
from jax_engine.config.engine_args import EngineArgs
from jax_engine.errors import ConfigError
from jax_engine.progress_log import show_progress_lines

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from jax_engine.commands.batch_file import Output
    from jax_engine.commands.batch_run import Batch


USAGE = "[-i] IN [-o] OUT [flags]"
HELP = "answer the requests of a file (JSONL, or OpenAI's batch format)"
PER_RUNNING = 4  # requests under way for each that can run: the engine never waits for one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    add_config_flag(parser)
    EngineArgs.add_cli_args(parser)  # before those that have another meaning here
    add = parser.add_argument
    add("files", nargs="*", metavar="IN OUT", help="the files, if not given by -i and -o")
    add("-i", "--input-file", metavar="IN", help="requests, one a line; -: standard input")
    add("-o", "--output-file", metavar="OUT", help="their answers; -: standard output")
    add("--text", action="store_true", help="a line of the input is a prompt, not JSON")
    add("--overwrite", action="store_true", help="begin anew if OUT exists")
    add(
        "--served-model-name",
        nargs="+",
        metavar="NAME",
        help="what requests may call the model (MODEL)",
    )
    add_lora_modules(parser)
    add("--chat-template", metavar="FILE", help="Jinja, or a file with it (the model's own)")
    add_sampling_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Answers all requests; returns 0 if each has an answer, 1 if some are errors."""
    import asyncio  # a third of the time in which the command line starts

    from jax_engine.commands.batch_file import Output, Reader

    check_given(args, "served_model_name")
    check_sampling(args)
    source, target = _names(args)
    show_progress_lines()
    file = _opened(source)
    output = Output.open(target, overwrite=args.overwrite)
    reader = Reader(file, sampling_fields(args), as_text=args.text)
    before = len(output.done)
    try:
        with tqdm(
            total=_count(source), initial=before, unit="request", disable=None, dynamic_ncols=True
        ) as bar:
            batch = _batch(args, output, bar.update)
            with asyncio.Runner(loop_factory=_loop) as runner:
                runner.run(batch.run(reader))
    except KeyboardInterrupt:
        _notify("stopped: the same command goes on with the rest")
        return 130
    finally:
        output.close()
    again = f", {before} of them before" if before else ""
    _notify(f"{batch.written + before} lines are answered{again}; {output.failed} are errors")
    return int(output.failed > 0)


def _notify(text: str) -> None:
    print(f"jax-engine generate: {text}", file=sys.stderr)


def _names(args: argparse.Namespace) -> tuple[str, str]:
    """
    Raises:
        ConfigError: there is not one input and one output.
    """
    from jax_engine.commands.batch_file import same_file

    left = list(args.files)
    source = args.input_file or (left.pop(0) if left else None)
    target = args.output_file or (left.pop(0) if left else None)
    if source is None or target is None or left:
        raise ConfigError("one input and one output are needed: -i IN.jsonl -o OUT.jsonl")
    if same_file(source, target):
        raise ConfigError(f"the input and the output are the same file: {source}")
    return source, target


def _opened(source: str) -> BinaryIO:
    if source == "-":
        # Not `sys.stdin.buffer`: at its end Python closes that, and aborts if a thread reads it.
        return open(sys.stdin.fileno(), "rb", closefd=False)
    try:
        return Path(source).expanduser().open("rb")
    except OSError as error:
        raise ConfigError(f"the input {source}: {error.strerror}") from error


def _count(source: str) -> int | None:
    """How many requests a file has; None of a pipe."""
    path = Path(source).expanduser()
    if source == "-" or not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(1 for line in file if line.strip())


def _batch(args: argparse.Namespace, output: "Output", progress: Callable[[int], Any]) -> "Batch":
    from jax_engine.commands.batch_file import MAX_LINE
    from jax_engine.commands.batch_run import Batch
    from jax_engine.serving.api.service import ServerSettings
    from jax_engine.serving.async_llm import AsyncLLM
    from jax_engine.tokenization.chat_template import load_chat_template

    settings = ServerSettings(
        names=tuple(args.served_model_name or [args.model or DEFAULT_NAME]),
        lora_modules=checked_lora_modules(args),
        chat_template=load_chat_template(args.chat_template),
        max_body_bytes=2 * MAX_LINE,  # written again, a line may be longer
    )
    engine_args = EngineArgs.from_cli_args(args)
    most = PER_RUNNING * engine_args.create_engine_config().max_num_seqs
    return Batch(lambda: AsyncLLM.from_engine_args(engine_args), settings, most, output, progress)


def _loop() -> "AbstractEventLoop":
    import uvloop

    return uvloop.new_event_loop()
