"""`examples/ray_serve.py` and `examples/ray_data.py`, which docs/ray.md shows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from examples import ray_data, ray_serve
from tests.meta.trees import ROOT
from tests.ray.test_data import answers
from tests.ray.test_serve import complete, free_port
from tests.support.patience import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_the_application_scales_and_serves(cluster: Any, tiny: str) -> None:
    from ray import serve

    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(ray_serve.make_app({"model": tiny}))
    try:
        found = complete(port, "abc", model="my-model")
        assert found["usage"]["completion_tokens"] > 0
        until(lambda: serve.status().applications["default"].status == "RUNNING", "it runs")
    finally:
        serve.shutdown()


def test_files_and_rows_are_answered(
    cluster: Any, tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {"prompt": f"row {number}", "max_tokens": 8, "temperature": 0.0} for number in range(6)
    ]
    Path("prompts.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    assert ray_data.answer_file(tiny) == 6
    by_file = [one["text"] for _, one in sorted(answers(Path("answers.jsonl")).items())]
    # Whole paths: Ray's processes have started in another folder.
    ray_data.answer_rows(tiny, str(tmp_path / "prompts.jsonl"), str(tmp_path / "rows"))
    rows = [json.loads(line) for path in Path("rows").iterdir() for line in path.open()]
    assert [one["text"] for one in sorted(rows, key=lambda one: one["prompt"])] == by_file


def test_the_page_s_command_names_what_is_there() -> None:
    page = (ROOT / "docs" / "ray.md").read_text("utf-8")
    found = re.findall(r"serve run examples\.ray_serve:(\w+) (\w+)=", page)
    assert found == [("make_app", "model")] and callable(ray_serve.make_app)
