"""Plays a history on an engine, checks each output, and compares each request with itself alone.

An example is a dict: `setup` has the arguments of `make`, `mode` those of them that the engine of a
lonely request gets as well. `requests` are described so that they shrink well (see `resolve`), and
`history` is a list of operations, each a list of a word and what it is about:

    ["add", r]      adds request r, under its number or, where that runs, another name
    ["step", n]     n steps
    ["abort", [r]]  aborts all that runs of these requests
    ["drain"]       steps until the engine is idle
    ["rest"]        drains, and ends the session
    ["flush"]       drains, and forgets cached blocks
    ["wrong", kind] adds a request that should be refused
"""

from typing import Any

from paged_conformance.engine.alone import Result, alone, compare, results
from paged_conformance.engine.streams import Streams, add, drain
from paged_conformance.properties import Refused, demand

WRONG: dict[str, dict[str, Any]] = {
    "empty": {"prompt": []},
    "too-long": {"prompt": "too long"},
    "unknown-token": {"prompt": "unknown token"},
    "negative-token": {"prompt": [3, -1, 4]},
    "no-tokens": {"max_tokens": 0},
    "fewer-than-none": {"max_tokens": -1},
    "cold": {"temperature": -0.5},
    "min-above-max": {"min_tokens": 9, "max_tokens": 3},
    "top-p-zero": {"temperature": 1.0, "top_p": 0.0},
    "top-p-two": {"temperature": 1.0, "top_p": 2.0},
    "no-samples": {"temperature": 1.0, "n": 0},
    "stop-nowhere": {"stop_token_ids": [-7]},
    "stop-outside": {"stop_token_ids": [2**31], "min_tokens": 1},
    "many-logprobs": {"logprobs": 10**7},
    "fewer-logprobs": {"logprobs": -5},
}


def prompt_of(spec: Any, sizes: dict[str, int], before: list[Any]) -> list[int]:
    """The tokens of a prompt.

    Args:
        spec: A list of tokens; or {"stem": s, "length": a, "tail": [..]}, the first `a` tokens of a
            text that all with this `s` share, and what follows; or {"of": r, "cut": k, "tail":
            [..]}, the prompt of an earlier request, the first k tokens that it gets alone, and what
            follows.
        before: The prompt and the result alone of each earlier request, None if it has none.
    """
    if isinstance(spec, list):
        return spec
    size = sizes["vocabulary"]
    if "of" in spec:
        known = before[spec["of"]] if spec["of"] < len(before) else None
        start = known[0] + known[1].token_ids[: spec["cut"]] if known else []
        return (start + [token % size for token in spec["tail"]]) or [1 % size]
    stem = [(7 * i * i + 31 * i + 17 * spec["stem"] + 3) % size for i in range(spec["length"])]
    return (stem + [token % size for token in spec["tail"]]) or [1 % size]


def longest_prompt(sizes: dict[str, int]) -> int:
    """Prompts of histories are cut to so many tokens, so that small pools have room for each."""
    return 3 * sizes.get("block_size", 16) + 20


class Play:
    """One engine and the requests of an example."""

    def __init__(self, make: Any, example: Any) -> None:
        self.make, self.mode = make, example.get("mode", {})
        self.sizes: dict[str, int] = getattr(make, "sizes", {})
        self.capabilities = frozenset(getattr(make, "capabilities", ()))
        self.requests: list[tuple[list[int], dict[str, Any], list[Result]] | None] = []
        for spec in example["requests"]:
            self.requests.append(self._resolve(spec))
        self.engine = make(**example.get("setup", {}), **self.mode)
        self.streams = Streams(make)
        self.names: dict[str, int] = {}
        self.num_adds = 0

    def _resolve(self, spec: Any) -> tuple[list[int], dict[str, Any], list[Result]] | None:
        """The prompt, the parameters and the results alone; None if it is refused even alone."""
        before = [None if one is None else (one[0], one[2][0]) for one in self.requests]
        params = dict(spec["params"])
        prompt = prompt_of(spec["prompt"], self.sizes, before)
        room = self.sizes["max_len"] - params["max_tokens"]
        prompt = prompt[: max(1, min(room, longest_prompt(self.sizes)))]
        if "ends" in spec:
            self._add_ends(prompt, params, spec["ends"])
        try:
            return prompt, params, alone(self.make, self.mode, prompt, params)
        except Refused:
            return None

    def _add_ends(self, prompt: list[int], params: dict[str, Any], ends: Any) -> None:
        """Stops that will come: tokens at these places, and parts of the text."""
        try:
            free = alone(self.make, self.mode, prompt, free_of_ends(params, self.capabilities))[0]
        except Refused:
            return
        tokens = [free.token_ids[place % len(free.token_ids)] for place in ends.get("tokens", ())]
        if tokens:
            params["stop_token_ids"] = tokens
        text = (free.text or "").rstrip("\ufffd")
        cuts = [text[a % len(text) :][:size] for a, size in ends.get("texts", ()) if text]
        stops = [cut for cut in cuts if cut and "\ufffd" not in cut]
        if stops:
            params["stop"] = stops

    def run(self, history: list[Any]) -> None:
        """All operations; then the engine must become idle, with nothing left of anybody."""
        for operation in history:
            getattr(self, operation[0])(*operation[1:])
        self.drain()

    def add(self, place: int) -> None:
        if place >= len(self.requests) or self.requests[place] is None:
            return
        prompt, params, _ = self.requests[place]  # type: ignore[misc]
        self.num_adds += 1
        name = f"r{place}"
        running = {**self.streams.live, **self.streams.aborted}
        if name in running or ("names" not in self.capabilities and name in self.names):
            name = f"r{place}-{self.num_adds}"
        self.names[name] = place
        add(self.engine, self.streams, name, prompt, params)

    def step(self, count: int) -> None:
        for _ in range(count):
            if not self.engine.is_busy():
                return
            self.streams.take(self.engine.step())
            self._compare_ended()

    def abort(self, places: list[int]) -> None:
        names = [name for name in self.streams.live if self.names.get(name) in places]
        outputs = self.engine.abort(ids=names)
        self.streams.abort(names)
        self.streams.take(outputs)

    def drain(self) -> None:
        drain(self.engine, self.streams)
        self._compare_ended()
        if "state" in self.capabilities:
            left = {name: count for name, count in self.engine.state().items() if count}
            demand(not left, f"the engine is idle, and it keeps {left}")

    def rest(self) -> None:
        self.drain()
        if "sessions" in self.capabilities:
            self.engine.rest()

    def flush(self) -> None:
        self.drain()
        if "prefix_cache" in self.capabilities:
            self.engine.flush()

    def wrong(self, kind: str) -> None:
        """It is refused; or accepted, and then it ends, somehow."""
        params: dict[str, Any] = {"max_tokens": 2} | WRONG[kind]
        prompt = params.pop("prompt", [5, 6, 7])
        if prompt == "too long":
            prompt = [1] * (self.sizes["max_len"] + 1)
        if prompt == "unknown token":
            prompt = [1, self.sizes["vocabulary"] + 7]
        self.num_adds += 1
        name = f"wrong{self.num_adds}"
        try:
            self.engine.add(id=name, prompt=prompt, params=params)
        except Refused:
            return
        self.streams.begin(name, prompt, params, wrong=True)

    def _compare_ended(self) -> None:
        for name, samples in self.streams.ended.items():
            if name not in self.names:
                continue
            request = self.requests[self.names[name]]
            assert request is not None
            _, params, expected = request
            if is_determined(params):
                got = results(samples)
                for index, (one, other) in enumerate(zip(expected, got, strict=True)):
                    compare(self.make, f"sample {index} of {name}", one, other)
        self.streams.ended.clear()


def is_determined(params: dict[str, Any]) -> bool:
    """Whether the same request must get the same tokens again."""
    return params.get("temperature", 0) == 0 or params.get("seed") is not None


def free_of_ends(params: dict[str, Any], capabilities: Any) -> dict[str, Any]:
    """The same request, which only its length ends, where the engine lets one ignore its eos."""
    names = ("stop", "stop_token_ids", "min_tokens", "include_stop", "kind", "logprobs", "priority")
    free = {name: value for name, value in params.items() if name not in names}
    return free | ({"ignore_eos": True} if "eos" in capabilities else {})


def play(make: Any, example: Any) -> None:
    """What most properties check."""
    Play(make, example).run(example["history"])
