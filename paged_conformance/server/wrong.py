"""Servers that are wrong on purpose, each in one way, and the property that notices it."""

import json
import time
from typing import Any

from paged_conformance.server import scripted_model as model
from paged_conformance.server.scripted import Handler, Scripted
from paged_conformance.server.scripted_model import Output, Step


class CompanyReachesTheContext(Scripted):
    """What else runs changes what the model is given."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        time.sleep(0.002)  # as long as a step takes
        mixed = prompt + "!" * (self.num_running > 2)
        return super().complete(mixed, wanted, index)


class WarmCacheLosesALetter(Scripted):
    """A hit on a prompt's cache begins one letter too late."""

    def context(self, prompt: str) -> str:
        known = prompt in self.seen
        return super().context(prompt)[known:]


class LimitCountsThePrompt(Scripted):
    """The first token of the answer differs when only few are asked for."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        return super().complete(prompt + "?" * (wanted["max_tokens"] < 4), wanted, index)


class SeedIsIgnored(Scripted):
    """Every request draws anew."""

    def wanted(self, body: dict[str, Any], api: str) -> dict[str, Any]:
        return super().wanted(body, api) | {"seed": time.monotonic_ns()}


class SamplesAreCopies(Scripted):
    """All samples are the first one."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        return super().complete(prompt, wanted, 0)


class EchoShiftsStreamedOffsets(Scripted):
    """Behind an echoed prompt, the offsets of a stream begin at 0 again."""

    def _pieces(self, *of: Any) -> list[dict[str, Any]]:
        found = super()._pieces(*of)
        for raw in found[1:]:
            if of[5] is not None and raw.get("logprobs"):
                behind = len("".join(of[5]))
                offsets = raw["logprobs"]["text_offset"]
                raw["logprobs"]["text_offset"] = [one - behind for one in offsets]
        return found


class LastPieceIsLost(Scripted):
    """What is held back for a stop string is not sent when the limit ends the answer."""

    def _pieces(self, *of: Any) -> list[dict[str, Any]]:
        found = super()._pieces(*of)
        wanted = of[2]
        if wanted["stop"] and "delta" in found[-1] and found[-1]["finish_reason"] == "length":
            found[-1]["delta"]["content"] = ""
        return found


class CallsLoseAPiece(Scripted):
    """A quote that begins a piece of arguments is dropped."""

    def arguments(self, pieces: list[str]) -> list[str]:
        return [pieces[0], *(piece.removeprefix('"') for piece in pieces[1:])]


class NoDone(Scripted):
    """A stream ends without [DONE]."""

    def events(self, bodies: list[dict[str, Any]]) -> list[str]:
        return super().events(bodies)[:-1]


class IdsChange(Scripted):
    """Each event of a stream has an id of its own."""

    def events(self, bodies: list[dict[str, Any]]) -> list[str]:
        return super().events([body | {"id": f"c-{place}"} for place, body in enumerate(bodies)])


class RoleIsMissing(Scripted):
    """A chat's stream does not begin with its role."""

    def events(self, bodies: list[dict[str, Any]]) -> list[str]:
        for body in bodies:
            for raw in body["choices"]:
                raw.get("delta", {}).pop("role", None)
        return super().events(bodies)


class DeltasAreNumberedFromOne(Scripted):
    """Two events of a response have the same number."""

    def respond(self, body: Any) -> list[dict[str, Any]]:
        events = super().respond(body)
        return [one | {"sequence_number": max(1, one["sequence_number"])} for one in events]


class StopLeaks(Scripted):
    """The beginning of a stop string that a token ends in is sent."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        output = super().complete(prompt, wanted, index)
        if isinstance(output.stop, str) and not wanted["include"]:
            output.pieces[-1] += output.stop[:1]
        return output


class StopBeforeTheLeast(Scripted):
    """`min_tokens` does not hold for stop token ids."""

    def wanted(self, body: dict[str, Any], api: str) -> dict[str, Any]:
        found = super().wanted(body, api)
        return found | ({"min_tokens": 0} if found["stop_token_ids"] else {})


class LeastIsOneTooFew(Scripted):
    """`min_tokens` counts the end of sequence."""

    def wanted(self, body: dict[str, Any], api: str) -> dict[str, Any]:
        found = super().wanted(body, api)
        return found | {"min_tokens": max(0, found["min_tokens"] - 3)}


class StopTokensGoOn(Scripted):
    """An answer goes on for a token behind its stop token."""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        output = super().complete(prompt, wanted, index)
        if isinstance(output.stop, int):
            output.steps.append(Step(0, "", -0.1, {}))
            output.pieces.append("")
        return output


class UsageCountsOneSample(Scripted):
    """The total counts one sample, the tokens completed all."""

    def usage(self, prompts: list[list[str]], outputs: list[Output]) -> dict[str, int]:
        found = super().usage(prompts, outputs)
        return found | {"total_tokens": found["prompt_tokens"] + len(outputs[0].steps)}


class ErrorsAreText(Scripted):
    """A model that is not there is a failure."""

    def refused(self, error: str) -> tuple[int, dict[str, Any]]:
        status, body = super().refused(error)
        return (500, body) if "model" in error else (status, body)


class EchoIsStripped(Scripted):
    """The space at the end of an echoed prompt is lost."""

    def echoed(self, prompt: str, text: str) -> str:
        return prompt.rstrip() + text


class PromptsAreSorted(Scripted):
    """The answers of a list come in the order of the prompts' lengths."""

    def prompts(self, body: dict[str, Any], api: str) -> list[list[str]]:
        return sorted(super().prompts(body, api), key=len)


class EmbeddingsDependOnTheirPlace(Scripted):
    """Only the first text of a list is embedded rightly."""

    def embedding(self, text: str, place: int) -> list[float]:
        return super().embedding(text + " " * place, place)


class StopIdsEndTheEngine(Scripted):
    """A stop token that is out of range is looked up where tokens must not end an answer yet."""

    def check(self, body: dict[str, Any]) -> None:
        ids = body.pop("stop_token_ids", None)
        super().check(body)
        body["stop_token_ids"] = ids
        is_list = isinstance(ids, list)
        if is_list and body.get("min_tokens") and any(one not in range(model.VOCAB) for one in ids):
            self.is_well = False


class EmptyPromptsFail(Scripted):
    """An empty prompt is a failure of the server."""

    def answer(self, body: Any, api: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        if isinstance(body, dict) and body.get("prompt") in ("", []):
            raise IndexError("list index out of range")
        return super().answer(body, api)


class BiasesFail(Scripted):
    """A bias of a token that is none is a failure."""

    def check(self, body: dict[str, Any]) -> None:
        super().check(body)
        for token in body.get("logit_bias") or ():
            int(token)


class LongPromptsEndTheEngine(Scripted):
    """A prompt that is longer than any ends the server."""

    def prompts(self, body: dict[str, Any], api: str) -> list[list[str]]:
        found = super().prompts(body, api)
        self.is_well = self.is_well and all(len(prompt) < 4000 for prompt in found)
        return found


class AnyBodyIsAnObject(Scripted):
    """A body that is no object is a failure."""

    def answer(self, body: Any, api: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        body.get("model")
        return super().answer(body, api)


class EmbedsWithoutAWord(Scripted):
    """A body without a text to embed is a failure."""

    def embed(self, body: Any) -> dict[str, Any]:
        body["input"]
        return super().embed(body)


class SchemasFail(Scripted):
    """A schema of no type is a failure."""

    def _guided(self, body: dict[str, Any], wanted: dict[str, Any]) -> Output | None:
        if '{"type": "x"}' in json.dumps(body):
            raise RuntimeError("no such type")
        return super()._guided(body, wanted)


class SchemasHoldEverybody(Scripted):
    """A schema is compiled while nothing else runs, and takes longer by its depth."""

    def guided(self, schema: Any) -> str:
        if json.dumps(schema).count('"items"') > 15:
            self.is_well = False
        return super().guided(schema)


class SchemasAreHints(Scripted):
    """An answer under a schema ends with a word of its own."""

    def guided(self, schema: Any) -> str:
        return super().guided(schema) + " Done."


class WhoLeavesKeepsItsSlot(Scripted):
    """A request whose client has gone is counted as running for ever."""

    def left(self) -> None:
        """The slot is lost."""


class AnswersAreMixedUp(Scripted):
    """Two clients at once may get each other's prompt."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def complete(self, prompt: str, wanted: dict[str, Any], index: int) -> Output:
        self.last = prompt
        time.sleep(0.001)
        return super().complete(self.last, wanted, index)


class Slow(Handler):
    """Leaves time between two pieces, so that clients can leave."""

    def pause(self) -> None:
        time.sleep(0.003)


WRONG: tuple[tuple[type[Scripted], str], ...] = (
    (CompanyReachesTheContext, "greedy-in-company"),
    (WarmCacheLosesALetter, "greedy-warm-cache"),
    (LimitCountsThePrompt, "smaller-limit"),
    (SeedIsIgnored, "seeds-repeat"),
    (SamplesAreCopies, "samples-differ"),
    (EchoShiftsStreamedOffsets, "completion-stream-is-whole"),
    (LastPieceIsLost, "chat-stream-is-whole"),
    (CallsLoseAPiece, "call-stream-is-whole"),
    (NoDone, "stream-events"),
    (IdsChange, "stream-events"),
    (RoleIsMissing, "stream-events"),
    (DeltasAreNumberedFromOne, "response-events"),
    (StopLeaks, "stop-strings"),
    (StopBeforeTheLeast, "stop-token-ids"),
    (StopTokensGoOn, "stop-token-ids"),
    (LeastIsOneTooFew, "least-tokens"),
    (UsageCountsOneSample, "answer-form"),
    (ErrorsAreText, "answer-type"),
    (EchoIsStripped, "echo"),
    (PromptsAreSorted, "prompt-lists"),
    (EmbeddingsDependOnTheirPlace, "embeddings"),
    (BiasesFail, "odd-values"),
    (StopIdsEndTheEngine, "values-end-nothing"),
    (LongPromptsEndTheEngine, "prompts-end-nothing"),
    (EmptyPromptsFail, "odd-prompts"),
    (AnyBodyIsAnObject, "bad-bodies"),
    (EmbedsWithoutAWord, "odd-places"),
    (SchemasFail, "odd-schemas"),
    (SchemasHoldEverybody, "schemas-end-nothing"),
    (SchemasAreHints, "schema-followed"),
    (WhoLeavesKeepsItsSlot, "storms"),
    (AnswersAreMixedUp, "clients"),
)
