"""Fields and arguments of requests from Python: `LLM`, `LLMEngine`, `AsyncLLM`."""

import asyncio
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jax_engine import (
    LLM,
    AsyncLLM,
    BeamSearchParams,
    InvalidRequestError,
    LLMEngine,
    LoRARequest,
    PoolingParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
)
from jax_engine.engine.requests.prompts import TokenizationOptions
from jax_engine.serving import async_llm
from jax_engine.tokenization.tokenizer import load_tokenizer
from jax_engine.worker.worker import Worker
from tests.lora.adapters import tensors_of, write_folder
from tests.serving.fields.cases import BOS, SAY, TEMPLATE, TOOL
from tests.serving.fields.conftest import ARRIVAL, SETTINGS
from tests.support.accepted import Fields, as_wanted, changed, fields_of
from tests.support.engine_in_thread import in_threads
from tests.support.patience import HANG_S

ADAPTERS: dict[str, Any] = {"enable_lora": True, "max_loras": 2}
CUMULATIVE, DELTA, FINAL_ONLY = RequestOutputKind
GRAMMAR = StructuredOutputsParams(regex="a+")
type Wanted = dict[str, Any]


def processor(tokens: Any, logits: Any) -> Any:
    """Edits nothing."""
    return logits


# What is given for each field, and what is then in the request. None: the same.
SAMPLING: dict[str, tuple[dict[str, Any], Wanted | None]] = {
    one: ({one: value}, None)
    for one, value in {
        "n": 2, "best_of": 3, "presence_penalty": 0.5, "frequency_penalty": -0.25,
        "repetition_penalty": 1.25, "temperature": 0.25, "top_p": 0.5, "top_k": 7, "min_p": 0.125,
        "top_n_sigma": 1.5, "seed": 11, "stop": ["!", "?"], "stop_token_ids": [65, 66],
        "ignore_eos": True, "max_tokens": None, "min_tokens": 2, "logprobs": 3,
        "prompt_logprobs": 4, "logprob_token_ids": [65, 67], "flat_logprobs": True,
        "logit_bias": {65: 1.5}, "allowed_token_ids": [65, 67], "bad_words": ["no"],
        "logits_processors": [processor], "structured_outputs": GRAMMAR, "detokenize": False,
        "skip_special_tokens": False, "spaces_between_special_tokens": False,
        "include_stop_str_in_output": True, "extra_args": {"mine": [1, "b"]}, "skip_clone": True,
        "output_kind": DELTA, "num_speculative_tokens": 3, "thinking_token_budget": 5,
    }.items()
}  # fmt: skip
BEAMS = {"use_beam_search": True, "n": 2}
SAMPLING |= {
    "guided_decoding": ({"guided_decoding": GRAMMAR}, {"structured_outputs": GRAMMAR}),
    # Cut at the client or in the engine: the prompt is shorter.
    "truncate_prompt_tokens": ({"truncate_prompt_tokens": 2}, {"prompt": "ce"}),
    "trace_decode_token_ids": (
        {"trace_decode_token_ids": [65, 66, 67]},
        {
            "trace_decode_token_ids": [65, 66, 67], "max_tokens": 3, "ignore_eos": True,
            "logits_processors": lambda found: len(found) == 1,  # what draws these tokens
        },
    ),
    "use_beam_search": (BEAMS, BEAMS),
    "length_penalty": (BEAMS | {"length_penalty": 0.5},) * 2,
    "early_stopping": (BEAMS | {"early_stopping": "never"},) * 2,
}  # fmt: skip
# What the client's end of a link keeps to itself, or says in a form of its own.
OF_THE_LINK: dict[str, Wanted] = {
    "flat_logprobs": {}, "skip_clone": {}, "output_kind": {},
    # Only the end tells which sequences are returned: nobody streams them.
    "best_of": {"best_of": 3, "output_kind": FINAL_ONLY},
    "use_beam_search": BEAMS | {"output_kind": FINAL_ONLY},
    "length_penalty": BEAMS | {"length_penalty": 0.5, "output_kind": FINAL_ONLY},
    "early_stopping": BEAMS | {"early_stopping": "never", "output_kind": FINAL_ONLY},
}  # fmt: skip
# The parameters say how to cut, and the prompt is cut: the engine keeps both, a link one.
KEPT = {"truncate_prompt_tokens": {"prompt": "ce", "truncate_prompt_tokens": 2}}
POOLING: dict[str, tuple[dict[str, Any], Wanted]] = {
    "pooling_type": ({"pooling_type": "MEAN"},) * 2,
    "normalize": ({"normalize": False},) * 2,
    "use_activation": ({"use_activation": False}, {"use_activation": False, "normalize": False}),
    "dimensions": ({"dimensions": 5},) * 2,
    "task": ({"task": "token_embed"},) * 2,
}
SALTED = {"prompt": "Once", "cache_salt": "mine"}
SALT = {"cache_salt": "mine", "salt of the prompt": "mine"}


class Ways:
    """All ways from Python into an engine; each gives what the engine accepts."""

    def __init__(self, checkpoint: Path, accepted: list[Any]) -> None:
        self.path, self.accepted = str(checkpoint), accepted
        self.tokenizer = load_tokenizer(checkpoint)
        self.llm = LLM(self.path, **SETTINGS, **ADAPTERS)
        self.runner = asyncio.Runner()
        self.client = AsyncLLM(self.path, **SETTINGS, **ADAPTERS)
        self.names: list[str] = []
        self.client.request_log = lambda name, *_: self.names.append(name)  # type: ignore[assignment]

    def close(self) -> None:
        self.client.shutdown()
        self.runner.close()

    def taken(self, call: Callable[[], Any]) -> Fields:
        self.accepted.clear()
        call()
        [request] = self.accepted
        return fields_of(request, self.tokenizer)

    def generate(self, prompt: Any, params: Any, **options: Any) -> Fields:
        kept = {"use_tqdm": False} | options
        if isinstance(params, PoolingParams):
            return self.taken(lambda: self.llm.encode(prompt, params, **kept))
        return self.taken(lambda: self.llm.generate(prompt, params, **kept))

    def enqueue(self, prompt: Any, params: Any, **options: Any) -> Fields:
        def call() -> None:
            self.llm.enqueue(prompt, params, **{"use_tqdm": False, **options})
            self.llm.wait_for_completion(use_tqdm=False)

        return self.taken(call)

    def add_request(self, prompt: Any, params: Any, **options: Any) -> Fields:
        engine = self.llm.llm_engine

        def call() -> None:
            engine.add_request("mine", prompt, params, **options)
            engine.step()

        return self.taken(call)

    def link(self, prompt: Any, params: Any, **options: Any) -> Fields:
        pools = isinstance(params, PoolingParams)

        async def read() -> None:
            enter: Any = self.client.encode if pools else self.client.generate
            async for _ in enter(prompt, params, **options):
                pass

        return self.taken(lambda: self.runner.run(asyncio.wait_for(read(), HANG_S)))


def have_slots(patch: pytest.MonkeyPatch) -> None:
    """Devices have slots for adapters. Nothing comes to them: no step is computed here."""
    init = Worker.__init__

    def with_slots(self: Worker, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.capabilities = dataclasses.replace(self.capabilities, max_loras=2)

    patch.setattr(Worker, "__init__", with_slots)


@pytest.fixture(scope="module")
def ways(fields_checkpoint: Path, accepted: list[Any]) -> Iterator[Ways]:
    with pytest.MonkeyPatch.context() as patch:
        in_threads(patch)
        have_slots(patch)
        patch.setattr(async_llm, "time", SimpleNamespace(monotonic=lambda: ARRIVAL))
        found = Ways(fields_checkpoint, accepted)
        yield found
        found.close()


def names_of(kind: type[Any]) -> set[str]:
    return {one.name for one in dataclasses.fields(kind)}


def test_each_field_has_a_case() -> None:
    assert names_of(SamplingParams) == SAMPLING.keys()
    assert names_of(PoolingParams) == POOLING.keys()


@pytest.mark.parametrize("way", ["generate", "enqueue", "add_request", "link"])
@pytest.mark.parametrize("name", SAMPLING)
def test_a_field_of_sampling_is_in_what_the_engine_accepts(name: str, way: str, ways: Ways) -> None:
    given, wanted = SAMPLING[name]
    wanted = given if wanted is None else wanted
    if name == "logits_processors" and way == "link":
        return  # a function: it is refused there
    wanted = (OF_THE_LINK if way == "link" else KEPT).get(name, wanted)
    if name == "output_kind" and way in ("generate", "enqueue"):
        wanted = {}  # one output at the end, whatever is asked for
    enter = getattr(ways, way)
    plain = enter("Once", SamplingParams())
    found = changed(enter("Once", SamplingParams(**given)), plain)
    assert as_wanted(found, wanted), found


@pytest.mark.parametrize("way", ["generate", "add_request", "link"])
@pytest.mark.parametrize("name", POOLING)
def test_a_field_of_pooling_is_in_what_the_engine_accepts(name: str, way: str, ways: Ways) -> None:
    given, wanted = POOLING[name]
    enter = getattr(ways, way)
    plain = enter("Once", PoolingParams())
    found = changed(enter("Once", PoolingParams(**given)), plain)
    assert as_wanted(found, wanted), found


# Arguments of each way beside prompt and parameters, and what each is to the engine.
NONE: tuple[dict[str, Any], Wanted] = ({}, {})
PRIORITY = {"priority": 3}, {"priority": 3}
TIMEOUT = {"timeout": 77.0}, {"timeout": 77.0}
CUT = {"tokenization_kwargs": {"truncate_prompt_tokens": 2}}, {"prompt": "ce"}
OFFLINE = {
    "priority": PRIORITY, "timeout": TIMEOUT, "tokenization_kwargs": CUT, "use_tqdm": NONE,
    "lora_request": NONE, "mm_processor_kwargs": NONE,
}  # fmt: skip
ARGUMENTS: dict[str, tuple[Any, dict[str, tuple[dict[str, Any], Wanted]]]] = {
    "generate": (LLM.generate, OFFLINE),
    "enqueue": (LLM.enqueue, OFFLINE),
    "add_request": (LLMEngine.add_request, {
        "priority": PRIORITY, "timeout": TIMEOUT,
        "arrival_time": ({"arrival_time": 5.5}, {"arrival_time": 5.5}), "request_id": NONE,
        "lora_request": NONE,
    }),
    "link": (AsyncLLM.generate, {"priority": PRIORITY, "timeout": TIMEOUT, "request_id": NONE,
                                 "lora_request": NONE, "trace_headers": NONE}),
}  # fmt: skip
_COMMON = {"self", "prompt", "prompts", "params", "sampling_params"}


@pytest.mark.parametrize("way", ARGUMENTS)
def test_an_argument_is_in_what_the_engine_accepts(way: str, ways: Ways) -> None:
    function, cases = ARGUMENTS[way]
    assert set(inspect.signature(function).parameters) - _COMMON == cases.keys()
    enter = getattr(ways, way)
    plain = enter("Once", SamplingParams())
    assert as_wanted(changed(enter(SALTED, SamplingParams()), plain), SALT)
    for given, wanted in cases.values():
        assert as_wanted(changed(enter("Once", SamplingParams(), **given), plain), wanted)


def test_an_argument_of_a_pooling_request_over_the_link(ways: Ways) -> None:
    """Its deadline, too."""
    plain = ways.link("Once", PoolingParams())
    assert plain["arrival_time"] == ARRIVAL and plain["is pooled"]
    for given, wanted in (PRIORITY, TIMEOUT):
        assert as_wanted(changed(ways.link("Once", PoolingParams(), **given), plain), wanted)
    assert as_wanted(changed(ways.link(SALTED, PoolingParams()), plain), SALT)
    assert set(inspect.signature(AsyncLLM.encode).parameters) == {
        *set(inspect.signature(AsyncLLM.generate).parameters) - {"sampling_params"},
        "pooling_params",
    }


@pytest.fixture(scope="module")
def lora(ways: Ways, tmp_path_factory: pytest.TempPathFactory) -> LoRARequest:
    modules = ways.llm.llm_engine._adapters.modules
    folder = tmp_path_factory.mktemp("adapters") / "mine"
    return LoRARequest("mine", 7, str(write_folder(folder, tensors_of(of=modules))), "the base")


def adapted(lora: LoRARequest, ways: Ways) -> Wanted:
    """What an engine gets for this adapter. A link keeps the label, which no engine needs."""
    found = ways.llm.llm_engine.read_lora(lora)
    both = (lora, dataclasses.replace(lora, base_model_name=None))
    digest = found.digest
    return {
        "adapter": digest, "lora_request": lambda one: one in both,
        "cache_salt": lambda one: one in ((digest, None), (digest, "mine")),
    }  # fmt: skip


@pytest.mark.parametrize("way", ["generate", "enqueue", "add_request", "link"])
def test_an_adapter_is_in_what_the_engine_accepts(way: str, ways: Ways, lora: LoRARequest) -> None:
    enter, wanted = getattr(ways, way), adapted(lora, ways)
    kinds: list[Any] = [SamplingParams(), *[PoolingParams()] * (way != "enqueue")]
    for params in kinds:
        plain = enter("Once", params)
        assert as_wanted(changed(enter("Once", params, lora_request=lora), plain), wanted)
        salted = changed(enter(SALTED, params, lora_request=lora), plain)
        assert as_wanted(salted, wanted | {"salt of the prompt": "mine"})
        assert salted["cache_salt"] == (wanted["adapter"], "mine")
        if way in ("generate", "enqueue"):
            assert as_wanted(changed(enter("Once", params, lora_request=[lora]), plain), wanted)
            assert changed(enter("Once", params, lora_request=[None]), plain) == {}


def test_an_adapter_of_a_chat_a_search_and_each_kind_of_pooling(
    ways: Ways, lora: LoRARequest
) -> None:
    llm, beams = ways.llm, BeamSearchParams(beam_width=2)
    wanted = adapted(lora, ways)
    calls: list[Callable[..., Any]] = [
        lambda **given: llm.chat(SAY, chat_template=TEMPLATE, use_tqdm=False, **given),
        lambda **given: llm.beam_search("Once", beams, use_tqdm=False, **given),
        lambda **given: llm.embed("Once", use_tqdm=False, **given),
    ]
    for call in calls:
        plain = ways.taken(call)
        found = ways.taken(lambda call=call: call(lora_request=lora))  # type: ignore[misc]
        assert as_wanted(changed(found, plain), wanted)


def test_each_text_of_a_pair_has_the_pair_s_adapter(ways: Ways, lora: LoRARequest) -> None:
    for given, wanted in ((lora, [lora] * 4), ([lora, None], [lora, None] * 2)):
        ways.accepted.clear()
        with suppress(Exception):  # there is nothing to compare: no device has computed anything
            ways.llm.score(["a", "b"], ["c", "d"], lora_request=given, use_tqdm=False)
        assert [one.lora for one in ways.accepted] == wanted


@pytest.mark.parametrize("way", ["generate", "enqueue", "link"])
def test_an_adapter_is_refused_wherever_it_may_be_named(way: str, ways: Ways) -> None:
    kinds: list[Any] = [SamplingParams(), *[PoolingParams()] * (way != "enqueue")]
    for params in kinds:
        with pytest.raises(InvalidRequestError, match="must be a LoRARequest or None, got 'mine'"):
            getattr(ways, way)("Once", params, lora_request="mine")
        assert not ways.accepted


def test_a_request_over_the_link_has_its_clients_clock_and_name(ways: Ways) -> None:
    assert ways.link("Once", SamplingParams())["arrival_time"] == ARRIVAL
    ways.link("Once", SamplingParams(), request_id="my own")
    assert ways.names[-1] == "my own"


CHAT: dict[str, tuple[dict[str, Any], Wanted]] = {
    "chat_template": ({"chat_template": "{{ messages[0].content }}!"}, {"prompt": "Once!"}),
    "chat_template_content_format": (
        {
            "chat_template_content_format": "openai",
            "chat_template": "{{ messages[0].content[0].text }}?",
        },
        {"prompt": "Once?"},
    ),
    "add_generation_prompt": ({"add_generation_prompt": False}, {"prompt": "[user]Once"}),
    "continue_final_message": (
        {
            "continue_final_message": True,
            "add_generation_prompt": False,
            "chat_template": "{{ messages[0].content }}, not this",
        },
        {"prompt": "Once"},
    ),
    "tools": ({"tools": [TOOL]}, {"prompt": "[user]Once[tools]find_it;[assistant]"}),
    "chat_template_kwargs": (
        {"chat_template_kwargs": {"flavour": "mint"}},
        {"prompt": "[user]Once[flavour mint][assistant]"},
    ),
    "tokenization_kwargs": (
        {"tokenization_kwargs": {"add_special_tokens": True}},
        {"prompt": f"{BOS}[user]Once[assistant]"},
    ),
    "options": ({"timeout": 77.0, "priority": 3}, {"timeout": 77.0, "priority": 3}),
    "use_tqdm": NONE,
    "lora_request": NONE,
}


def test_an_argument_of_a_chat_is_in_what_the_engine_accepts(ways: Ways) -> None:
    assert set(inspect.signature(LLM.chat).parameters) - {*_COMMON, "messages"} == CHAT.keys()

    def chat(**options: Any) -> Fields:
        kept = {"use_tqdm": False, "chat_template": TEMPLATE} | options
        return ways.taken(lambda: ways.llm.chat(SAY, SamplingParams(seed=5), **kept))

    plain = chat()
    assert plain["seed"] == 5
    for given, wanted in CHAT.values():
        assert as_wanted(changed(chat(**given), plain), wanted), given


def test_a_field_of_beam_search_is_in_what_the_engine_accepts(ways: Ways) -> None:
    cases: dict[str, dict[str, Any]] = {
        "beam_width": {"n": 3}, "max_tokens": {"max_tokens": 9}, "ignore_eos": {"ignore_eos": True},
        "temperature": {"temperature": 0.25}, "length_penalty": {"length_penalty": 0.5},
        "early_stopping": {"early_stopping": "never"},
    }  # fmt: skip
    assert names_of(BeamSearchParams) == cases.keys()

    def search(**given: Any) -> Fields:
        params = BeamSearchParams(**({"beam_width": 2} | given))
        return ways.taken(lambda: ways.llm.beam_search("Once", params, use_tqdm=False))

    plain = search()
    assert plain["use_beam_search"] and plain["n"] == 2
    for name, wanted in cases.items():
        assert as_wanted(changed(search(**{name: next(iter(wanted.values()))}), plain), wanted)


def test_an_option_of_tokenization_is_in_what_the_engine_accepts(ways: Ways) -> None:
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "add_special_tokens": ({"add_special_tokens": False}, "Once"),
        "truncation": ({"truncation": True, "max_length": 3}, f"{BOS}On"),
        "max_length": ({"truncation": True, "max_length": 2}, f"{BOS}O"),
        "truncation_side": (
            {"truncation": True, "max_length": 2, "truncation_side": "left"}, "ce",
        ),
        "truncate_prompt_tokens": ({"truncate_prompt_tokens": 2}, "ce"),
    }  # fmt: skip
    assert names_of(TokenizationOptions) == cases.keys()
    for given, prompt in cases.values():
        for params in (SamplingParams(), PoolingParams()):
            found = ways.generate("Once", params, tokenization_kwargs=given)
            assert found["prompt"] == prompt, given
