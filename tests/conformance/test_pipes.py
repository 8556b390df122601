"""Targets in other processes: right ones in two languages, and ones that end, hang or talk."""

import io
import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paged_conformance import Refused, pipes
from paged_conformance.command import main
from paged_conformance.errors import TargetError
from paged_conformance.pipe_server import answer_lines
from paged_conformance.pipes import (
    BadAnswer,
    NoAnswer,
    PipeFailure,
    Process,
    ProcessEnded,
    TargetFailed,
)
from tests.conformance.tiny import lender
from tests.support.patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]
TINY = "tests.conformance.tiny"
SERVED = "from paged_conformance import serve_pipe; from tests.conformance.tiny import "
# Describes its targets, makes one, and does something else when it is called.
MISBEHAVES = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["do"] == "call":
        {0}
    print(json.dumps({{"id": asked["id"], "result": {{}}}}), flush=True)
"""


def served(name: str) -> str:
    return shlex.join([sys.executable, "-c", SERVED + f"{name}; serve_pipe({name})"])


def python(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


@pytest.fixture(scope="module")
def purses() -> Iterator[Process]:
    with Process(served("lender"), answer_s=HANG_S) as process:
        yield process


def test_it_says_what_it_can_do(purses: Process) -> None:
    assert purses.capabilities == ["lend"]
    assert purses.sizes == {"largest": 5}


def test_targets_are_apart(purses: Process) -> None:
    first, second = purses(limit=10), purses(limit=20)
    first.put(amount=3)
    second.put(amount=20)
    assert (first.value(), second.value()) == (3, 20)


def test_a_refusal_is_refused(purses: Process) -> None:
    purse = purses(limit=10)
    with pytest.raises(Refused, match="11 more than 10"):
        purse.put(amount=11)
    assert purse.value() == 0


def test_what_the_target_raised_is_shown(purses: Process) -> None:
    purse = purses(limit=10)
    with pytest.raises(TargetFailed, match=r"(?s)Traceback.*has no attribute 'steal'"):
        purse.steal(amount=1)
    with pytest.raises(TargetFailed, match="unexpected keyword argument 'coins'"):
        purse.put(coins=1)
    assert purse.value() == 0, "the process goes on"


def test_targets_that_nobody_has_are_dropped() -> None:
    asked = [
        {"id": 1, "do": "make", "sizes": {"limit": 5}, "drop": []},
        {"id": 2, "do": "make", "sizes": {"limit": 5}, "drop": [1]},
        {"id": 3, "do": "call", "target": 1, "method": "value", "arguments": {}},
        {"id": 4, "do": "call", "target": 2, "method": "value", "arguments": {}},
    ]
    answers = io.StringIO()
    answer_lines(lender, io.StringIO("\n".join(map(json.dumps, asked))), answers)
    first, second, third, fourth = map(json.loads, answers.getvalue().splitlines())
    assert (first["result"], second["result"], fourth["result"]) == (1, 2, 0)
    assert "KeyError: 1" in third["error"]


def test_the_next_target_tells_the_process_which_are_dropped() -> None:
    echo = 'print(json.dumps({"id": asked["id"], "result": asked}), flush=True)'
    program = f"import json, sys\nfor line in sys.stdin:\n    asked = json.loads(line)\n    {echo}"
    with Process(python(program), answer_s=HANG_S) as process:
        first = process()
        number = first._number
        del first
        assert process()._number["drop"] == [number]
        assert process()._number["drop"] != [number]


@pytest.mark.parametrize(
    ("does", "failure", "says"),
    [
        ("os._exit(3)", ProcessEnded, "ended with exit status 3"),
        ("os.kill(os.getpid(), 11)", ProcessEnded, "ended by SIGSEGV"),
        ("os.close(1); time.sleep(1000)", ProcessEnded, "closed its output and runs on"),
        ("time.sleep(1000)", NoAnswer, "No answer within 0.5 s"),
        ("print('step 7 done')", BadAnswer, "no answer: 'step 7 done'. Standard output is for"),
        ("print('{}')", BadAnswer, "no answer: '{}'"),
        ("print('[1]')", BadAnswer, "no answer: '[1]'"),
        ("print('\\\\x00\\\\xff')", BadAnswer, "no answer"),
        ("print(json.dumps({'id': 77, 'result': 1}))", BadAnswer, "has not the id 3"),
        ("print('out of memory', file=sys.stderr); sys.exit(1)", ProcessEnded, "out of memory"),
    ],
)
def test_a_process_that_misbehaves(
    does: str, failure: type[PipeFailure], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told apart, and the next target is made in a new process."""
    monkeypatch.setattr(pipes, "END_SECONDS", 0.5)
    answer_s = 0.5 if failure is NoAnswer else HANG_S
    with Process(python(MISBEHAVES.format(does)), answer_s=answer_s) as process:
        target = process(limit=1)
        with pytest.raises(failure) as failed:
            target.value()
        assert says in str(failed.value)
        with pytest.raises(ProcessEnded, match="has ended before"):
            target.value()
        with pytest.raises(failure):
            process(limit=1).value()


def test_a_process_that_does_not_read() -> None:
    """A pipe takes 64 KB that nobody reads; what is longer must not stop the suite."""
    answers_two = "import time\nfor number in 1, 2:\n    input()\n"
    answers_two += '    print(\'{"id": %d, "result": {}}\' % number, flush=True)\ntime.sleep(1000)'
    with Process(python(answers_two), answer_s=1.0) as process:
        target = process()
        with pytest.raises(NoAnswer, match="It read nothing for 1 s"):
            target.put(text="x" * 1_000_000)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no_such_program", "cannot be started"),
        ("'unclosed", "cannot be started"),
        ("false", "ended with exit status 1"),
        (python("print('Loading...', flush=True); input(); input()"), "no answer: 'Loading...'"),
        (
            python('input(); print(\'{"id": 1, "result": []}\', flush=True); input()'),
            "described its targets as []",
        ),
    ],
)
def test_a_process_that_cannot_be_used(command: str, says: str) -> None:
    with pytest.raises(TargetError) as failed:
        Process(command)
    assert says in str(failed.value)


def test_the_process_ends_with_its_user() -> None:
    process = Process(python(MISBEHAVES.format("pass")))
    running = process._running
    assert running is not None
    process.close()
    assert running._process.poll() is not None
    assert not any(thread.is_alive() for thread in running._threads)


def test_what_a_target_prints_is_no_answer(capfd: pytest.CaptureFixture[str]) -> None:
    talks = SERVED + "Purse\nimport os\nclass P(Purse):\n    def value(self):\n"
    talks += "        print('hello'); os.system('echo from a child'); return 5\nserve_pipe(P)"
    with Process(python(talks), answer_s=HANG_S) as process:
        assert process(limit=1).value() == 5


def test_the_command_finds_and_repeats_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ("--failures", str(tmp_path), "--seconds", "30", "--only", "sum")
    assert main([TINY, "--command", served("forgetful"), *folder]) == 1
    assert "Seen: it holds 20, not 21" in capsys.readouterr().out
    script = next(tmp_path.iterdir())
    assert main(["--replay", str(script)]) == 1
    assert "It fell: it holds 20, not 21" in capsys.readouterr().out
    assert main(["--replay", str(script), TINY, "--command", served("right")]) == 0


@pytest.mark.parametrize("language", ["node", "python"])
def test_the_examples_of_other_languages_are_right(
    language: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("paged_conformance.block_manager")
    if language == "node" and shutil.which("node") is None:
        pytest.skip("there is no node here")
    file = {"node": "block_manager.js", "python": "block_manager_alone.py"}[language]
    program = sys.executable if language == "python" else language
    command = f"{program} {ROOT / 'examples/conformance' / file}"
    status = main(["block-manager", "--command", command, "--seconds", "4", "--seed", "0"])
    assert status == 0, capsys.readouterr().out
