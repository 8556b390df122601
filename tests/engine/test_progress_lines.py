"""What a user sees while something is compiled: nothing of what is short, and no torn bar."""

import logging
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from jax_engine import LLM, progress_log
from jax_engine.progress_log import compiling
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S, until
from tests.support.tiny_llama import tiny_llama

LOGGER = logging.getLogger("jax_engine.compile")
BAR_AND_LINES = """
import logging, sys
from tqdm import tqdm
from jax_engine.progress_log import show_progress_lines
show_progress_lines()
with tqdm(total=3, desc="Processed prompts", ncols=60, mininterval=0) as bar:
    for i in range(3):
        logging.getLogger("jax_engine.compile").info("compiling step %d", i)
        bar.update(1)
"""


def test_what_is_short_says_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_log, "LONG_S", HANG_S)
    with caplog.at_level(logging.INFO), compiling(LOGGER, "a step"):
        pass
    assert caplog.messages == []


def test_what_is_long_says_so_while_it_lasts_and_when_it_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_log, "LONG_S", 0.0)
    with caplog.at_level(logging.INFO):
        with compiling(LOGGER, "a step"):
            until(lambda: caplog.messages, "a line")
            assert caplog.messages == ["compiling a step ..."]
        assert len(caplog.messages) == 2 and caplog.messages[1].startswith("compiled a step in")
        with pytest.raises(ZeroDivisionError), compiling(LOGGER, "another"):
            until(lambda: len(caplog.messages) == 3, "a line")
            raise ZeroDivisionError
    assert caplog.messages[2:] == ["compiling another ..."]


@pytest.mark.slow
def test_a_warm_up_has_one_bar_and_no_line_for_each_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(
        str(tiny_llama(tmp_path / "tiny")[0]),
        skip_tokenizer_init=True,
        max_model_len=32,
        num_gpu_blocks_override=16,
        max_num_seqs=2,
        max_num_batched_tokens=32,
    )
    monkeypatch.setattr(progress_log, "LONG_S", 0.0)
    with caplog.at_level(logging.INFO):
        assert llm.llm_engine.warmup() > 0
    assert not [text for text in caplog.messages if text.startswith("compiling")]


def test_lines_on_a_terminal_stand_above_an_untorn_bar() -> None:
    lines = _screen([sys.executable, "-c", BAR_AND_LINES])
    told = [f"jax-engine: compiling step {i}" for i in range(3)]
    assert lines[:3] == told
    assert lines[3].startswith("Processed prompts: 100%") and len(lines) == 4


def _screen(command: list[str]) -> list[str]:
    """What a terminal shows in the end; it knows carriage returns and no other movement."""
    terminal, side = pty.openpty()
    termios.tcsetwinsize(side, (24, 80))  # tqdm shows nothing on a terminal without rows
    child = subprocess.Popen(command, cwd=ROOT, stdin=side, stdout=side, stderr=side)
    os.close(side)
    output = b""
    try:
        while part := os.read(terminal, 4096):
            output += part
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(terminal)
    assert child.wait() == 0, output
    screen = []
    for line in output.decode().replace("\r\n", "\n").split("\n"):
        shown = ""
        for text in line.split("\r"):
            shown = text + shown[len(text) :]
        screen.append(shown.rstrip())
    assert "\x1b" not in "".join(screen)
    return [line for line in screen if line]
