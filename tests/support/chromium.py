"""A page in a headless Chromium, driven over a pipe (the DevTools protocol)."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.patience import HANG_S, until

FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"]
FLAGS += ["--remote-debugging-pipe", "--disable-background-networking", "--disable-extensions"]


class Page:
    """One page.

    Attributes:
        requested: the addresses that it has asked for.
        problems: errors that it wrote to the console, and exceptions.
    """

    def __init__(self, commands: int, reports: int) -> None:
        self._commands, self._reports = os.fdopen(commands, "wb", 0), os.fdopen(reports, "rb", 0)
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.requested: list[str] = []
        self.problems: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> Any:
        """Sends a command; returns its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while True:
            report = self._next()
            if report.get("id") == self._number:
                assert "error" not in report, report
                return report["result"]
            self._note(report)

    def _next(self) -> Any:
        while b"\0" not in self._rest:
            data = self._reports.read(1 << 16)
            assert data, "Chromium has ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return json.loads(line)

    def _note(self, report: Any) -> None:
        params = report.get("params", {})
        if report["method"] == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif report["method"] == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif report["method"] == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])

    def size(self, width: int, height: int, *, phone: bool = False, scale: float = 1) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=phone,
        )  # fmt: skip

    def scheme(self, name: str) -> None:
        """Light or dark."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.ask("Emulation.setEmulatedMedia", features=[feature])

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """The value of an expression; of a promise, what it is kept with."""
        result = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def until(self, script: str) -> Any:
        """Waits for an expression to be true; returns its value."""
        try:
            return until(lambda: self.run(script), script)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.problems}") from None

    def picture(self) -> bytes:
        """What is seen, as WebP."""
        taken = self.ask("Page.captureScreenshot", format="webp", quality=85)
        return base64.b64decode(taken["data"])


@contextmanager
def chromium(program: str, folder: Path) -> Iterator[Page]:
    """A Chromium with a profile of its own in `folder`."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    # It reads at 3 and writes at 4, which may be among the pipes' own numbers: so by a shell.
    script = 'exec "$0" "$@" 3<&$IN 4>&$OUT'
    process = subprocess.Popen(
        ["bash", "-c", script, program, *FLAGS, f"--user-data-dir={folder / 'profile'}"],
        pass_fds=(in_read, out_write), stderr=subprocess.DEVNULL,
        env={**os.environ, "IN": str(in_read), "OUT": str(out_write)},
    )  # fmt: skip
    os.close(in_read)
    os.close(out_write)
    try:
        yield Page(in_write, out_read)
    finally:
        process.terminate()
        process.wait(HANG_S)
