"""`generate`: files of requests, answered by an engine, or by one that says what it is told to."""

import json
from pathlib import Path
from typing import Any

import pytest

from jax_engine import AsyncLLM, EngineDeadError
from jax_engine.commands.batch_file import Line, Output, Reader
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.commands.conftest import Run
from tests.support.scripted_llm import ScriptedLLM

CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SAY: Any = [{"role": "user", "content": "hi"}]


class Scripted(ScriptedLLM):
    starts = 0


@pytest.fixture
def scripted(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """What `generate` gets for an engine."""
    llm = Scripted(load_tokenizer(checkpoint))

    def make(args: Any) -> Scripted:
        llm.starts += 1
        return llm

    monkeypatch.setattr(AsyncLLM, "from_engine_args", make)
    return llm


def request(custom_id: Any, url: Any = TEXT, **body: Any) -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join(f"{x if isinstance(x, str) else json.dumps(x)}\n" for x in lines))
    return path


def read(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_no_line_is_lost(tmp_path: Path, run: Run, scripted: Scripted) -> None:
    lines = [
        request("a", CHAT, messages=SAY, max_tokens=4),
        request("b", temperature=-1, prompt="x"),
        '{"custom_id": bad',
        "",
        request("a", prompt="x"),
        request("c", "/v1/audio", prompt="x"),
        request(5, prompt="x"),
        request("d", prompt="x", stream=True),
        request("e", EMBED, input="x"),
        request("f", prompt="x") | {"method": "GET"},
        request("g", prompt="bug"),
        request("h") | {"body": 5},
        request("i", prompt="x") | {"max_tokens": 5},
    ]
    source, target = write(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    ended = run("run-batch", "-i", source, "-o", target)
    assert ended.status == 1 and "12 lines are answered; 10 are errors" in ended.err
    found = {one["id"]: one for one in read(target)}
    assert found.keys() == {f"batch_req_{i}" for i in range(1, 14) if i != 4}
    assert all(one.keys() == {"id", "custom_id", "response", "error"} for one in found.values())
    said = found["batch_req_1"]["response"]
    assert said["status_code"] == 200 and found["batch_req_1"]["custom_id"] == "a"
    assert said["body"]["choices"][0]["message"]["content"] == "Hello"
    wrong = found["batch_req_2"]["response"]
    assert (wrong["status_code"], wrong["body"]["error"]["param"]) == (400, "temperature")
    assert found["batch_req_9"]["response"]["body"]["data"][0]["embedding"] == [0.25, -1.0]
    assert found["batch_req_11"]["response"]["status_code"] == 500
    for number, problem in (
        (3, "line 3: it is not JSON"), (5, "custom_id 'a' is that of line 1"),
        (6, "url must be one of"), (7, "custom_id must be a string, got 5"), (8, "stream"),
        (10, "method must be 'POST', got 'GET'"), (12, "body must be a JSON object, got 5"),
        (13, "'max_tokens' is no field of a batch's line: the request is in body"),
    ):  # fmt: skip
        one = found[f"batch_req_{number}"]
        assert one["response"] is None and problem in one["error"]["message"]


def test_short_lines_keep_their_order(tmp_path: Path, run: Run, scripted: Scripted) -> None:
    lines = [
        {"prompt": "x", "n": 2, "temperature": 0.5},
        "{",
        {"messages": SAY, "max_tokens": 3},
        {"prompt": "x", "messages": SAY},
        {"prompt": "x", "temperatures": 1},
        {"prompt": "y"},
        "[]",
    ]
    source, target = write(tmp_path / "in.jsonl", *lines), tmp_path / "out.jsonl"
    ended = run("generate", source, target, "--temperature=0.25", "--seed=4")
    assert ended.status == 1 and "7 lines are answered; 4 are errors" in ended.err
    found = read(target)
    assert [one["line"] for one in found] == [1, 2, 3, 4, 5, 6, 7]
    assert [one["text"] for one in found[0]["choices"]] == ["Hello", "Hello"]
    assert found[2]["text"] == "Hello" and found[2]["finish_reason"] == "stop"
    assert found[5].keys() == {"line", "text", "finish_reason", "usage"}
    errors = [one["error"]["message"] for one in found if "error" in one]
    assert len(errors) == 4 and "did you mean temperature?" in errors[2]
    sampled = [(params.temperature, params.seed) for _, params in scripted.asked]
    assert sorted(sampled) == [(0.25, 4), (0.25, 4), (0.5, 4)]


def test_it_goes_on_where_it_was(tmp_path: Path, run: Run, scripted: Scripted) -> None:
    source = write(tmp_path / "in.jsonl", *[request(str(i), prompt="x") for i in range(9)])
    target = tmp_path / "out.jsonl"
    assert run("generate", source, target).status == 0
    whole = read(target)
    lines = target.read_bytes().splitlines(keepends=True)
    target.write_bytes(b"".join(lines[2:7]) + lines[7][:20])  # the last line is torn
    ended = run("generate", source, target)
    assert ended.status == 0 and "9 lines are answered, 5 of them before" in ended.err
    assert len(scripted.asked) == 9 + 4 and scripted.starts == 2
    again = read(target)
    assert sorted(one["custom_id"] for one in again) == sorted(one["custom_id"] for one in whole)
    assert run("generate", source, target).status == 0
    assert scripted.starts == 2  # no engine is built for nothing
    write(source, *[request(f"other {i}", prompt="x") for i in range(9)])
    ended = run("generate", source, target)
    assert ended.status == 1 and "it is of another input" in ended.err
    assert run("generate", source, target, "--overwrite").status == 0
    assert {one["custom_id"][:5] for one in read(target)} == {"other"}


def test_a_dead_engine_leaves_its_lines_undone(
    tmp_path: Path, run: Run, scripted: Scripted
) -> None:
    source = write(tmp_path / "in.jsonl", *[request(str(i), prompt="bug") for i in range(3)])
    scripted.errored = True
    scripted.dead_error = EngineDeadError("the engine's process (pid 5) ended")  # type: ignore
    ended = run("generate", source, tmp_path / "out.jsonl")
    assert ended.status == 1 and "pid 5" in ended.err.splitlines()[-1]
    assert read(tmp_path / "out.jsonl") == []


def test_wrong_files_are_one_line(tmp_path: Path, run: Run, scripted: Scripted) -> None:
    source = write(tmp_path / "in.jsonl", {"prompt": "x"})
    other = write(tmp_path / "notes.txt", "my notes")
    for words, problem in (
        ([], "-i IN.jsonl -o OUT.jsonl"),
        ([source], "one input and one output"),
        ([source, "x", "y"], "one input and one output"),
        ([tmp_path / "none", "x"], "No such file"),
        ([tmp_path, tmp_path / "x"], "Is a directory"),
        ([source, tmp_path], "Is a directory"),
        ([source, tmp_path / "none" / "x"], "No such file"),
        ([source, source], "the same file"),
        ([source, other], "is not an output of this command"),
        ([source, tmp_path / "x", "--max-num-seqs=0"], "max_num_seqs must be at least 1"),
        ([source, tmp_path / "x", "--max-tokens=-1"], "max_tokens must be at least 1"),
        ([source, tmp_path / "x", "--served-model-name", ""], "--served-model-name must not be"),
    ):
        ended = run("generate", *words)
        assert ended.status == 1 and problem in ended.err, (words, ended)
        assert ended.err.count("\n") == 1
    assert other.read_text() == "my notes\n" and source.read_text() == '{"prompt": "x"}\n'
    source.write_text("")
    assert run("generate", source, tmp_path / "new").status == 0
    assert (tmp_path / "new").read_text() == "" and scripted.starts == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a full device")
def test_a_full_disk_is_one_line(tmp_path: Path, run: Run, scripted: Scripted) -> None:
    """The device has no end, too: what it holds already must not be read."""
    source = write(tmp_path / "in.jsonl", {"prompt": "x"}, {"prompt": "y"})
    ended = run("generate", source, "/dev/full")
    problem = "the output /dev/full: No space left on device: the same command goes on with the"
    assert ended.status == 1 and problem in ended.err and ended.err.count("\n") == 1


def test_lines_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jax_engine.commands.batch_file.MAX_LINE", 30)
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n' + b"x" * 100 + b'\n{"prompt": "b"}\n\xff\n' + b"y" * 50)
    with path.open("rb") as file:
        found = list(Reader(file, {}, as_text=False))
    assert [one.number for one in found] == [1, 2, 3, 4, 5]
    assert [one.problem is None for one in found] == [True, False, True, False, False]
    path.write_bytes("\ufeffé\r\n\nlast".encode())  # as programs of Windows begin a text
    with path.open("rb") as file:
        found = list(Reader(file, {"top_k": 2}, as_text=True))
    assert found == [
        Line(1, False, None, TEXT, {"top_k": 2, "prompt": "é"}),
        Line(3, False, None, TEXT, {"top_k": 2, "prompt": "last"}),
    ]


@pytest.mark.parametrize("end", [b"", b"\n", b"\nb"], ids=["ends", "newline", "another"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "marked"])
def test_a_line_of_just_the_most_bytes_is_read(
    mark: str, end: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark of UTF-8 at the start counts: without it a line too long would not look cut."""
    monkeypatch.setattr("jax_engine.commands.batch_file.MAX_LINE", 30)
    path, longest = tmp_path / "in.txt", 30 - len(mark.encode())
    after = [(2, "b")] if end == b"\nb" else []
    for length in (longest, longest + 1):
        path.write_bytes(mark.encode() + b"a" * length + end)
        with path.open("rb") as file:
            found = list(Reader(file, {}, as_text=True))
        first = (1, "a" * length if length == longest else None)
        assert [(one.number, one.body.get("prompt")) for one in found] == [first, *after]
        assert (found[0].problem is None) == (length == longest)


def test_each_line_is_for_its_own_endpoint(tmp_path: Path) -> None:
    batch = [request(one, one) for one in (TEXT, EMBED)]
    path = write(tmp_path / "in.jsonl", {"prompt": "x"}, {"messages": SAY}, *batch)
    with path.open("rb") as file:
        found = list(Reader(file, {"top_k": 2}, as_text=False))
    assert [(one.url, one.of_batch) for one in found] == [
        (TEXT, False), (CHAT, False), (TEXT, True), (EMBED, True),
    ]  # fmt: skip
    assert [one.body for one in found] == [
        {"top_k": 2, "prompt": "x"}, {"top_k": 2, "messages": SAY}, {}, {},
    ]  # fmt: skip


def test_lines_are_written_in_the_order_in_which_they_are_expected(tmp_path: Path) -> None:
    """Short ones, of any order in which answers come; each call says how many it has written."""
    path = tmp_path / "out.jsonl"
    output = Output.open(str(path), overwrite=False)
    short = [Line(number, False) for number in (1, 2, 5, 6)]
    for one in short:
        output.expect(one)
    written = [output.write(one, b"%d\n" % one.number) for one in (short[2], short[1])]
    batch = Line(9, True, "a")
    output.expect(batch)
    written.append(output.write(batch, b"9\n"))
    assert (written, path.read_text()) == ([0, 0, 1], "9\n")
    written = [output.write(one, b"%d\n" % one.number) for one in (short[0], short[3])]
    assert (written, path.read_text().split()) == ([3, 1], ["9", "1", "2", "5", "6"])
    output.close()
