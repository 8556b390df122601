"""The command `paged-conformance`: what it prints, writes and exits with."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paged_conformance import search as searching
from paged_conformance.command import main, read_known
from paged_conformance.suites import SUITES, suite_of

ROOT = Path(__file__).resolve().parents[2]
TINY = "tests.conformance.tiny"
type Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    """Runs the command with short shrinking, and gives its exit status, output and errors."""
    monkeypatch.setattr(searching, "SHRINK_SECONDS", (5.0, 5.0))

    def run(*arguments: object) -> tuple[int, str, str]:
        folder = ("--failures", str(tmp_path / "failures"), "--seed", "1")
        try:
            status = main([*map(str, arguments), *folder])
        except SystemExit as error:
            status = int(error.code or 0)
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_a_right_target_holds(command: Command) -> None:
    status, out, err = command(TINY, f"{TINY}:right", "--seconds", 1)
    assert status == 0
    assert "2 held, 1 skipped" in out and "seed 1." in out
    assert "lends                     skip   the target lacks lend (It can be in debt)" in out
    assert "[1/3] holds-the-sum held" in err


def test_what_a_target_can_do_is_tested(command: Command) -> None:
    status, out, _ = command(TINY, f"{TINY}:lender", "--seconds", 1)
    assert status == 0
    assert "3 held" in out
    assert "lends                     held   4 examples, all there are" in out


def test_a_failure_names_the_invariant_the_example_and_a_script(
    command: Command, tmp_path: Path
) -> None:
    status, out, err = command(TINY, f"{TINY}:forgetful", "--seconds", 20, "--only", "sum")
    script = tmp_path / "failures" / "tests-conformance-tiny-holds-the-sum.py"
    assert status == 1
    assert out.splitlines()[2:11] == [
        "FELL holds-the-sum (I1)",
        "A purse holds what was put into it.",
        "",
        "Seen: it holds 20, not 21",
        "",
        "The smallest example:",
        "[21]",
        "",
        f"Repeat it: python {script}",
    ]
    assert "holds-the-sum fell" in err and "it holds 20, not 21" in err
    assert script.exists()


def test_the_same_seed_draws_the_same_examples(command: Command) -> None:
    counts = set()
    for _ in range(2):
        _, out, _ = command(TINY, f"{TINY}:forgetful", "--only", "sum", "--format", "json")
        counts.add(json.loads(out)["properties"][0]["examples"])
    assert len(counts) == 1


def test_a_target_that_breaks_shows_its_traceback(command: Command) -> None:
    status, out, _ = command(TINY, f"{TINY}:clumsy", "--only", "holds*")
    assert status == 1
    assert "ZeroDivisionError: the purse is torn" in out
    assert "search.py" not in out  # the suite's own frames are left out


def test_a_target_that_calls_exit_is_a_failure(command: Command) -> None:
    status, out, _ = command(TINY, f"{TINY}:leaving", "--only", "holds*")
    assert status == 1
    assert "Exited: it called sys.exit(3)" in out and "in put" in out


def test_an_endless_loop_is_a_failure(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "EXAMPLE_SECONDS", 0.2)
    monkeypatch.setattr(searching, "SHRINK_SECONDS", (0.5, 0.5))
    status, out, _ = command(TINY, f"{TINY}:looping", "--only", "sum", "--seconds", 30)
    assert status == 1
    assert "Hung: it did not end within 0.2 s" in out


def test_a_failure_that_does_not_repeat_is_told(command: Command, tmp_path: Path) -> None:
    status, out, _ = command(TINY, f"{TINY}:moody", "--only", "sum", "--seconds", 30)
    assert status == 1
    assert "It did not fail each time that the example was repeated." in out
    assert "TIMES = 50" in next((tmp_path / "failures").iterdir()).read_text()


def test_nothing_ran_is_a_failure(command: Command) -> None:
    status, out, _ = command(TINY, f"{TINY}:right", "--only", "lends")
    assert status == 3
    assert "Nothing ran, which counts as a failure." in out


def test_known_failures(command: Command, tmp_path: Path) -> None:
    known = tmp_path / "known.txt"
    known.write_text("# ours\n\nholds-the-sum  # issue 7\nrefuses-beyond-the-limit # it is old\n")
    status, out, _ = command(TINY, f"{TINY}:forgetful", "--known", known, "--seconds", 10)
    assert status == 0
    assert "it fell after" in out and "; issue 7" in out
    status, out, _ = command(TINY, f"{TINY}:right", "--known", known, "--seconds", 1)
    assert status == 0
    assert out.count("it is in the file of known failures, take it out") == 2


def test_reports(command: Command, tmp_path: Path) -> None:
    files = [tmp_path / f"new/report{ending}" for ending in (".json", ".xml", ".md", ".txt")]
    asked = [part for file in files for part in ("--report", file)]
    status, out, _ = command(TINY, f"{TINY}:forgetful", *asked, "--seconds", 10)
    assert status == 1
    as_json, junit, markdown, text = (file.read_text() for file in files)
    assert text == out

    report = json.loads(as_json)
    assert (report["exit_status"], report["seed"], report["target"]) == (1, 1, f"{TINY}:forgetful")
    fell = report["properties"][0]
    assert (fell["status"], fell["invariant"], fell["example"]) == ("fell", "I1", [21])
    assert fell["sentence"] == "A purse holds what was put into it."
    assert report["properties"][2]["status"] == "skipped"

    suite = ElementTree.fromstring(junit)
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "2", "1")
    message = suite.findall("testcase/failure")[0].get("message")
    assert message == "it holds 20, not 21"

    assert "| holds-the-sum | I1 | FELL | after" in markdown
    assert "### holds-the-sum" in markdown and "[21]" in markdown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "KIND is missing: kernel, block-manager"),
        (["schedular", "a:b"], "Did you mean 'scheduler'?"),
        ([TINY], "give either TARGET"),
        ([TINY, f"{TINY}:right", "--command", "cat"], "give either TARGET"),
        ([TINY, "right"], "is no module:name"),
        ([TINY, "no_such_module:right"], "No module 'no_such_module'"),
        ([TINY, f"{TINY}:wright"], "did you mean 'right'?"),
        ([TINY, f"{TINY}:PROPERTIES"], "is of type tuple and cannot be called"),
        ([TINY, f"{TINY}:boastful"], "knows no capability 'lent' (did you mean 'lend'?)"),
        ([TINY, f"{TINY}:right", "--only", "hold-the-sums"], "did you mean 'holds-the-sum'?"),
        ([TINY, f"{TINY}:right", "--report", "report.pdf"], "its ending says the format"),
        ([TINY, f"{TINY}:right", "--option", "model"], "--option model has no value"),
        ([TINY, f"{TINY}:right", "--option", "a=b"], "takes no --option"),
        ([TINY, f"{TINY}:right", "--known", "no_such_file"], "No such file"),
        ([TINY, f"{TINY}:right", "--seconds", "0"], "0 is no positive number of seconds"),
        ([TINY, f"{TINY}:right", "--seconds", "nan"], "nan is no positive number of seconds"),
        ([TINY, "--command", "no_such_program"], "cannot be started"),
        (["--replay", "no_such_file.py"], "cannot be read as a script"),
        (["--replay", __file__], "is no script of a failure: it has no EXAMPLE"),
    ],
)
def test_wrong_usage(command: Command, arguments: list[str], says: str) -> None:
    status, out, err = command(*arguments)
    assert status == 2
    assert says in err
    assert out == ""


def test_a_known_failure_that_is_no_property(tmp_path: Path) -> None:
    file = tmp_path / "known"
    file.write_text("\nhold-the-sum # why\n")
    with pytest.raises(Exception, match=r"line 2: .* 'hold-the-sum' \(did you mean 'holds-the-sum"):
        read_known(file, suite_of(TINY))


def test_list(command: Command) -> None:
    assert command("--list")[1].split() == list(SUITES)
    status, out, _ = command(TINY, "--list")
    assert status == 0
    assert "holds-the-sum (I1)\n    A purse holds what was put into it.\n" in out
    assert "A debt is remembered. Needs lend." in out
    assert "lend\n    It can be in debt.\n" in out


def test_a_script_repeats_its_failure_alone(command: Command, tmp_path: Path) -> None:
    command(TINY, f"{TINY}:forgetful", "--only", "sum", "--seconds", 20)
    script = tmp_path / "failures" / "tests-conformance-tiny-holds-the-sum.py"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "[21]" in done.stdout and "It fell: it holds 20, not 21" in done.stdout
    status, out, _ = command("--replay", script)
    assert status == 1 and "It fell: it holds 20, not 21" in out
    status, out, _ = command("--replay", script, TINY, f"{TINY}:right")
    assert status == 0 and "It held." in out
    status, _, err = command("--replay", script, "scheduler", f"{TINY}:right")
    assert status == 2 and f"is of the kind {TINY}, not scheduler" in err


def test_an_interrupt_ends_with_the_report_so_far(command: Command) -> None:
    status, out, _ = command(TINY, f"{TINY}:interrupting", "--seconds", 60)
    assert status == 130
    assert "holds-the-sum             held   " in out
    assert "lends                     -      not run" in out
    assert "It was interrupted." in out
