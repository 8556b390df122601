"""Fields of requests in files, and flags of commands, through the command line."""

import argparse
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from jax_engine.cli import main
from jax_engine.commands import generate
from jax_engine.commands.answer_flags import add_sampling_flags
from jax_engine.commands.batch_file import URLS
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.serving.fields.cases import BOS, TEMPLATE, WAYS
from tests.serving.fields.conftest import SETTINGS
from tests.support.accepted import Fields, as_wanted, changed, fields_of
from tests.support.engine_in_thread import in_threads

FLAGS = [
    f"--{name.replace('_', '-')}={json.dumps(value) if isinstance(value, dict) else value}"
    for name, value in SETTINGS.items()
]
# What a file cannot say, or what needs the server's own name of a request
_NOT_HERE = {"stream", "stream_options", "request_id"}
SAMPLING: dict[str, Any] = {
    "max_tokens": 9, "temperature": 0.25, "top_p": 0.5, "top_k": 7, "min_p": 0.125,
    "presence_penalty": 0.5, "frequency_penalty": -0.25, "repetition_penalty": 1.25, "seed": 11,
    "stop": "!",
}  # fmt: skip
WORDS = [f"--{name.replace('_', '-')}={value}" for name, value in SAMPLING.items()]
TOLD = SAMPLING | {"stop": ["!"], "prompt": f"{BOS}Once"}


@pytest.fixture
def ask(
    accepted: list[Any], fields_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Writes lines to a file and has it answered, line by line; returns what was accepted."""
    in_threads(monkeypatch)
    monkeypatch.setattr(generate, "PER_RUNNING", Fraction(1, SETTINGS["max_num_seqs"]))

    def of(lines: list[Any], *flags: str) -> list[Fields]:
        source = tmp_path / "in"
        source.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
        accepted.clear()
        where = "-i", str(source), "-o", str(tmp_path / "out"), "--model", str(fields_checkpoint)
        main(["generate", *where, "--served-model-name", "tiny", "other", *FLAGS, *flags])
        tokenizer = load_tokenizer(fields_checkpoint)
        return [fields_of(one, tokenizer) for one in accepted]

    return of


@pytest.mark.parametrize("url", URLS)
def test_a_field_of_a_batch_is_in_what_the_engine_accepts(url: str, ask: Any) -> None:
    """The batch has two lines for each field: one without it, one with it."""
    way = WAYS[url]
    cases = [one for name, one in way.cases.items() if name.partition(".")[0] not in _NOT_HERE]
    bodies = [way.plain | one.needs | more for one in cases for more in ({}, one.body)]
    lines = [
        {"custom_id": str(i), "method": "POST", "url": url, "body": body}
        for i, body in enumerate(bodies)
    ]
    found = ask(lines, "--chat-template", TEMPLATE)
    assert len(found) == len(bodies)
    arrivals = [one.pop("arrival_time") for one in found]
    assert arrivals == sorted(arrivals) and None not in arrivals
    for case, plain, one in zip(cases, found[::2], found[1::2], strict=True):
        assert as_wanted(changed(one, plain), case.engine), case


def test_each_flag_of_sampling_is_here() -> None:
    parser = argparse.ArgumentParser(add_help=False)
    add_sampling_flags(parser)
    assert {one.dest for one in parser._actions} == SAMPLING.keys()


@pytest.mark.parametrize("text", [True, False])
def test_a_flag_is_in_what_the_engine_accepts(text: bool, ask: Any) -> None:
    flags = ["--text"] if text else []
    line: Any = "Once" if text else {"prompt": "Once"}
    [found] = ask([line], *flags, *WORDS)
    assert {name: found[name] for name in TOLD} == TOLD


def test_a_line_says_more_than_a_flag(ask: Any) -> None:
    [found] = ask([{"prompt": "Once", "temperature": 0.75, "n": 2}], *WORDS)
    assert {name: found[name] for name in TOLD} == TOLD | {"temperature": 0.75}
    assert found["n"] == 2


@pytest.mark.parametrize("command", ["complete", "chat"])
def test_a_flag_of_a_command_that_has_its_own_engine(
    command: str, accepted: list[Any], fields_checkpoint: Path, capsys: Any
) -> None:
    accepted.clear()
    words = (
        ["Once", "--n=2"] if command == "complete" else ["-q", "Once", "--chat-template", TEMPLATE]
    )
    main([command, "--model", str(fields_checkpoint), *FLAGS, *words, *WORDS])
    [request] = accepted
    found = fields_of(request, load_tokenizer(fields_checkpoint))
    prompt = f"{BOS}Once" if command == "complete" else "[user]Once[assistant]"
    assert {name: found[name] for name in TOLD} == TOLD | {"prompt": prompt, "stop": ["!"]}
    assert found["n"] == (2 if command == "complete" else 1)
