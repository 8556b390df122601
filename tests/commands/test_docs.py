"""The commands of docs/command-line.md and of the help run as they stand, on a tiny model."""

import re
import shlex
from pathlib import Path

import pytest

from jax_engine.cli import EXAMPLES, make_parser, with_config
from jax_engine.config.reasoning_markers import reasoning_of_template
from jax_engine.serving.parsers.tool_formats import format_of_template
from tests.commands.conftest import FLAGS, Run
from tests.meta.trees import ROOT
from tests.quantize.models import write_model


def lines_of(page: str) -> list[str]:
    """The commands of a page."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]


PAGE = (ROOT / "docs" / "command-line.md").read_text("utf-8")
LINES = lines_of(PAGE)
SERVING = lines_of((ROOT / "docs" / "serving.md").read_text("utf-8"))
RUN = [one for one in LINES if "--url" not in one and "pull" not in one and "doctor" not in one]


def words_of(line: str) -> list[str]:
    """The words of `jax-engine` in a line of a shell."""
    command = line[line.index("jax-engine") :]
    return shlex.split(re.split(r" <|\)$| {2,}", command)[0])[1:]


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_the_page_s_commands_run(
    line: str, run: Run, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prompts.jsonl").write_text('{"prompt": "Hi", "max_tokens": 5}\n')
    request = (
        '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}'
    )
    Path("batch.jsonl").write_text(f"{request}\n")
    name, *words = words_of(line)
    if name == "quantize":
        write_model(Path("my-model"))
    if name in ("chat", "complete", "generate", "run-batch"):
        words += ["--model", str(checkpoint), *FLAGS]
        if "--max-tokens" not in words:
            words.append("--max-tokens=5")
    if "--text" in words:
        words[words.index("-")] = "prompts.jsonl"  # the test has no standard input of bytes
        words[words.index("-")] = "answers.jsonl"
    ended = run(name, *words, typed="Hi!\n")
    assert ended.status == 0, ended
    answers = [*Path().glob("answers.jsonl"), *Path().glob("results.jsonl")]
    assert ended.out or answers[0].read_text().count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        *LINES,
        *(line for line in SERVING if line.startswith("jax-engine")),
        *(line for line in EXAMPLES.splitlines() if "  jax-" in line),
    ],
)
def test_all_commands_are_known(line: str) -> None:
    words = words_of(line)
    if not any("--help" in one for one in words):
        _, unknown = make_parser().parse_known_args(words)
        assert not unknown


def test_the_commands_for_two_families_name_what_their_templates_tell() -> None:
    """The page says that the flags are what the server would find."""
    named = dict[str, tuple[str | None, str | None]]()
    for line in SERVING:
        if "-parser " in line and "-plugin" not in line:
            args = make_parser().parse_args(words_of(line))
            named[args.model_tag] = args.tool_call_parser, args.reasoning_parser
    shown = {
        "Qwen/Qwen3-Coder-30B-A3B-Instruct": "<tool_call>\n<function=name>",
        "openai/gpt-oss-20b": "<|channel|>analysis<|message|> <|channel|>commentary to=functions.f",
    }
    for model, template in shown.items():
        form = format_of_template(template)
        assert named.pop(model) == (form and form.name, reasoning_of_template(template))
    assert not named


def test_the_page_s_settings_are_flags(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "c.yaml").write_text(text)
    arguments = ["generate", "--config", str(tmp_path / "c.yaml"), "a", "b"]
    args = make_parser().parse_args(arguments)
    args = make_parser().parse_args(with_config(args.parser, args, arguments))
    assert (args.model, args.max_num_seqs, args.enable_prefix_caching) == ("./my-model", 64, True)
