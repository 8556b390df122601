"""`RemoteOpenAIServer` of vLLM's tests: a process of `jax-engine serve`, and clients of it."""

import json
import os
import re
import subprocess
import threading
from itertools import pairwise
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What is decided here and not by a test: a free port, and sizes for which the compiled steps of one
# server are those of the next. Without --enforce-eager, under which each operation is a call.
_OURS = ["--port=0", "--dtype=float32", "--max-num-seqs=8", "--num-gpu-blocks-override=2048"]
_POSITIONS = 8192  # SmolLM2's: of a test that wants a longer model only the length counts
_DECIDED = {flag.split("=")[0] for flag in _OURS} | {"--enforce-eager", "--load-format"}


def directory(name: str) -> str:
    """The model that stands for one of the hub."""
    stand_ins: dict[str, str] = json.loads(os.environ["VLLM_TESTS_MODELS"])
    return stand_ins.get(name, stand_ins[""])


def kept(flags: list[str], known: set[str]) -> tuple[list[str], list[str]]:
    """The flags of `jax-engine serve` among those of `vllm serve`, with values; and the others."""
    groups: list[list[str]] = []
    for word in map(str, flags):
        if word.startswith("--") or not groups:
            groups.append(word.split("=", 1))
        else:
            groups[-1].append(word)
    ours = [group for group in groups if group[0] in known and group[0] not in _DECIDED]
    others = [group[0] for group in groups if group[0] not in known]
    return [word for group in ours for word in group], others


def _known() -> set[str]:
    command = [os.environ["JAX_ENGINE_PYTHON"], "-m", "jax_engine", "serve", "--help"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    rows = re.findall(r"(?m)^  (--\S.*)$", said)
    return {flag for row in rows for flag in re.findall(r"(--[\w-]+)(?=,|\s|$)", row)}


class RemoteServer:
    """A server of the stand-in of a model, by the model's name, until the block ends.

    Raises:
        RuntimeError: It did not start, with its last line.
    """

    DUMMY_API_KEY = "token-abc123"

    def __init__(
        self,
        model: str,
        vllm_serve_args: list[str],
        *,
        env_dict: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        flags, self.others = kept(vllm_serve_args, _known())
        overrides = dict(options.get("override_hf_configs") or {})
        lengths = [int(next) for one, next in pairwise(flags) if one == "--max-model-len"]
        if max(lengths, default=0) > _POSITIONS:
            overrides["max_position_embeddings"] = max(lengths)
        if "--served-model-name" not in flags:
            flags += ["--served-model-name", model]
        if overrides:
            flags += ["--hf-overrides", json.dumps(overrides)]
        python = os.environ["JAX_ENGINE_PYTHON"]
        command = [python, "-m", "jax_engine", "serve", directory(model), *flags, *_OURS]
        print("starts", *command, "without", *self.others)
        self.show_hidden_metrics = False
        self.lines: list[str] = []
        environment = os.environ | (env_dict or {})
        self.proc = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        )
        self._started = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()
        self._started.wait()
        said = "".join(self.lines)
        found = re.search(r"served at https?(?:://([\w.]+):(\d+)|\+unix:(.*))", said)
        if not found:
            raise RuntimeError(f"the server does not start: {self.lines[-1:]}")
        self.host, self.port, self.uds = found[1] or "localhost", int(found[2] or 80), found[3]

    def _read(self) -> None:
        assert self.proc.stderr is not None
        for line in self.proc.stderr:
            self.lines.append(line)
            if "served at http" in line:
                self._started.set()
            print(line, end="")
        self._started.set()

    def __enter__(self) -> "RemoteServer":
        return self

    def __exit__(self, *error: object) -> None:
        self.proc.terminate()
        self.proc.wait()

    @property
    def url_root(self) -> str:
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts: str) -> str:
        return "/".join([self.url_root, *(part.strip("/") for part in parts if part)])

    def get_client(self, **options: Any) -> Any:
        import openai

        return openai.OpenAI(**self._options("v1", options))

    def get_async_client(self, **options: Any) -> Any:
        import openai

        return openai.AsyncOpenAI(**self._options("v1", options))

    def get_client_anthropic(self, **options: Any) -> Any:
        import anthropic

        return anthropic.Anthropic(**self._options("", options))

    def get_async_client_anthropic(self, **options: Any) -> Any:
        import anthropic

        return anthropic.AsyncAnthropic(**self._options("", options))

    def _options(self, path: str, options: dict[str, Any]) -> dict[str, Any]:
        given = {"base_url": self.url_for(path), "api_key": self.DUMMY_API_KEY}
        return given | {"max_retries": 0, "timeout": 600} | options
