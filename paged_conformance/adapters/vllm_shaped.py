"""What vLLM's engine and those with its methods have in common, as an `Engine` of the suite."""

from typing import Any

from paged_conformance.adapters import tiny_llama
from paged_conformance.properties import Refused

ALWAYS = ("max_tokens", "min_tokens", "temperature", "top_k", "top_p", "seed", "n", "stop",
          "stop_token_ids", "ignore_eos", "logprobs", "repetition_penalty", "presence_penalty",
          "frequency_penalty")  # fmt: skip
WORDS = {
    "draws", "seeds", "filters", "samples", "min_tokens", "stop_ids", "stops", "include_stop",
    "eos", "logprobs", "penalties", "bias", "priorities", "kinds", "names", "prefix_cache",
    "long_prompts", "sessions",
}  # fmt: skip
SIZES = {
    "vocabulary": tiny_llama.SIZES["vocab_size"], "max_len": 128, "eos": tiny_llama.EOS,
    "max_tokens": 8, "block_size": 16,
}  # fmt: skip


class VllmShaped:
    """An engine with add_request, step, abort_request and has_unfinished_requests.

    Args:
        engine: It serves nobody.
        module: Has SamplingParams and, here or in its `sampling_params`, RequestOutputKind.
        refusals: What `add_request` raises where it refuses.
    """

    def __init__(self, engine: Any, module: Any, refusals: tuple[type[Exception], ...]) -> None:
        self.engine, self.module, self.refusals = engine, module, refusals
        self._ends: dict[str, dict[int, Any]] = {}  # what was told last of each ended sample

    def add(self, *, id: str, prompt: list[int], params: dict[str, Any]) -> None:
        try:
            given = self.sampling_params(params)
            self.engine.add_request(
                id, {"prompt_token_ids": prompt}, given, priority=params.get("priority", 0)
            )
        except self.refusals as error:
            raise Refused(str(error)) from error
        self._ends.pop(id, None)  # of an earlier request of this name

    def sampling_params(self, params: dict[str, Any]) -> Any:
        kinds = getattr(self.module, "RequestOutputKind", None)
        if kinds is None:
            kinds = self.module.sampling_params.RequestOutputKind
        kind = {"delta": kinds.DELTA, "final": kinds.FINAL_ONLY}.get(
            params.get("kind", ""), kinds.CUMULATIVE
        )
        given = {name: params[name] for name in ALWAYS if name in params}
        given = {"temperature": 0.0, "logprobs": 0} | given
        if "include_stop" in params:
            given["include_stop_str_in_output"] = params["include_stop"]
        if "logit_bias" in params:
            given["logit_bias"] = {int(token): bias for token, bias in params["logit_bias"].items()}
        return self.module.SamplingParams(output_kind=kind, **given)

    def abort(self, *, ids: list[str]) -> list[Any]:
        outputs = self._outputs(self.engine.abort_request(ids) or [])
        for name in ids:
            self._ends.pop(name, None)
        return outputs

    def step(self) -> list[Any]:
        return self._outputs(self.engine.step())

    def _outputs(self, outputs: list[Any]) -> list[Any]:
        """What is new: cumulative outputs repeat the samples of a request that have ended."""
        told = []
        for output in outputs:
            ends = self._ends.setdefault(output.request_id, {})
            for one in output.outputs:
                said = {"id": output.request_id, "index": one.index, **_sample(one)}
                if said != ends.get(one.index):
                    told.append(said)
                if one.finish_reason is not None:
                    ends[one.index] = said
            if output.finished:
                self._ends.pop(output.request_id, None)
        return told

    def is_busy(self) -> bool:
        return bool(self.engine.has_unfinished_requests())

    def rest(self) -> None:
        """Nothing: it always has one session."""

    def flush(self) -> None:
        self.engine.reset_prefix_cache()


def _sample(one: Any) -> dict[str, Any]:
    top, tokens = one.logprobs, [int(token) for token in one.token_ids]
    return {
        "token_ids": tokens,
        "text": one.text,
        "logprobs": top and [row[token].logprob for row, token in zip(top, tokens, strict=True)],
        "top": top and [_best(row) for row in top],
        "finish_reason": one.finish_reason,
    }


def _best(row: Any) -> list[list[float]]:
    """The most probable first; the token itself may stand in front of them."""
    pairs = [[int(token), float(one.logprob)] for token, one in row.items()]
    return sorted(pairs, key=lambda pair: -pair[1])
