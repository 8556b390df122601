"""Each field of each request: a value that is not its default, and what the engine is then told.

A field that is added to a request has no case here, and a test fails until it has one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jax_engine.sampling_params import StructuredOutputsParams
from jax_engine.serving.api.anthropic.messages_request import MessagesRequest
from jax_engine.serving.api.endpoint_requests import (
    ChatRequest,
    ClassifyRequest,
    CompletionRequest,
    EmbeddingRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
)
from jax_engine.serving.api.openai.responses_request import ResponsesRequest

type Wanted = dict[str, Any]

SAY = [{"role": "user", "content": "Once"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {
    "type": "structural_tag",
    "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}],
    "triggers": ["<f"],
}
NEW_TAG = {"type": "structural_tag", "format": {"type": "any_text"}}
FUNCTION = {"name": "find_it", "description": "Finds it.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
FLAT_TOOL = {"type": "function", **FUNCTION}
INPUT_TOOL = {"name": "find_it", "description": "Finds it.", "input_schema": SCHEMA}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    "{% if tools %}[tools]{% for t in tools %}{{ t.function.name }};{% endfor %}{% endif %}"
    "{% if documents %}[documents]{% for d in documents %}{{ d.title }};{% endfor %}{% endif %}"
    "{% if reasoning_effort %}[effort {{ reasoning_effort }}]{% endif %}"
    "{% if flavour %}[flavour {{ flavour }}]{% endif %}"
    "{% if enable_thinking is defined %}[thinks {{ enable_thinking }}]{% endif %}"
    "{# <tool_call> #}{% if add_generation_prompt %}[assistant]{% endif %}"
)
BOS = "<|end|>"  # what the tokenizer of these tests adds before a text
CHAT = "[user]Once"


@dataclass(frozen=True)
class Case:
    """
    Attributes:
        body: the field off its default, and what it needs beside it.
        engine: the fields that the engine is told otherwise than of the plain request, all of
            them; a function says whether a value will do.
        needs: fields that are also in the plain request that this one is compared with.
        why: who reads a field that the engine is not told of.
    """

    body: dict[str, Any]
    engine: Wanted = field(default_factory=dict)
    needs: dict[str, Any] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Way:
    """
    Attributes:
        model: the class of its requests.
        plain: a request that says no more than it must.
        server: whose way in it is: that of a model which generates, or of a "reranker".
    """

    model: type[Any]
    cases: dict[str, Case]
    plain: dict[str, Any]
    server: str = "generator"


def grammar(**one: Any) -> Wanted:
    return {"structured_outputs": StructuredOutputsParams(**one)}


def holds(*parts: str) -> Callable[[Any], bool]:
    return lambda value: all(part in str(value) for part in parts)


def alike(**values: Any) -> dict[str, Case]:
    """Fields that are called alike here and in the engine."""
    return {name: Case({name: value}, {name: value}) for name, value in values.items()}


SAMPLING = alike(
    temperature=0.25,
    top_p=0.5,
    top_k=7,
    min_p=0.125,
    top_n_sigma=1.5,
    presence_penalty=0.5,
    frequency_penalty=-0.25,
    repetition_penalty=1.25,
    seed=11,
    stop_token_ids=[65, 66],
    bad_words=["no"],
    min_tokens=2,
    ignore_eos=True,
    include_stop_str_in_output=True,
    skip_special_tokens=False,
    spaces_between_special_tokens=False,
    allowed_token_ids=[65, 67],
    num_speculative_tokens=3,
    thinking_token_budget=5,
    priority=3,
    timeout=77.0,
) | {
    # The engine reads a list.
    "stop": Case({"stop": ["!", "?"]}, {"stop": ["!", "?"]}),
    "logit_bias": Case({"logit_bias": {"65": 1.5}}, {"logit_bias": {65: 1.5}}),
    "cache_salt": Case(
        {"cache_salt": "mine"}, {"cache_salt": "mine", "salt of the prompt": "mine"}
    ),
    "request_id": Case({"request_id": "my own"}, {"name": holds("my own")}),
    "structured_outputs.json": Case({"structured_outputs": {"json": SCHEMA}}, grammar(json=SCHEMA)),
    "structured_outputs.regex": Case({"structured_outputs": {"regex": "a+"}}, grammar(regex="a+")),
    "structured_outputs.choice": Case(
        {"structured_outputs": {"choice": ["a", "b"]}}, grammar(choice=["a", "b"])
    ),
    "structured_outputs.grammar": Case(
        {"structured_outputs": {"grammar": 'start: "a"'}}, grammar(grammar='start: "a"')
    ),
    "structured_outputs.json_object": Case(
        {"structured_outputs": {"json_object": True}}, grammar(json_object=True)
    ),
    "structured_outputs.structural_tag": Case(
        {"structured_outputs": {"structural_tag": NEW_TAG}}, grammar(structural_tag=NEW_TAG)
    ),
    "guided_json": Case({"guided_json": SCHEMA}, grammar(json=SCHEMA)),
    "guided_regex": Case({"guided_regex": "b+"}, grammar(regex="b+")),
    "guided_choice": Case({"guided_choice": ["c"]}, grammar(choice=["c"])),
    "guided_grammar": Case({"guided_grammar": 'start: "b"'}, grammar(grammar='start: "b"')),
    "guided_decoding_backend": Case(
        {"guided_decoding_backend": "guidance"}, why="there is one backend, and it has that name"
    ),
    "stream": Case({"stream": True}, {"output_kind": holds("DELTA")}),
    "model": Case({"model": "other"}, why="the server has one model, by several names"),
    "vllm_xargs": Case({"vllm_xargs": {"weight": 2}}, {"extra_args": {"weight": 2}}),
}

SHARED = SAMPLING | {
    "n": Case({"n": 2}, {"n": 2}),
    "best_of": Case({"best_of": 3}, {"best_of": 3}),
    "length_penalty": Case(
        {"length_penalty": 0.5},
        {"length_penalty": 0.5},
        {"use_beam_search": True, "n": 2, "temperature": 0.0},
    ),
    "early_stopping": Case(
        {"early_stopping": "never"},
        {"early_stopping": "never"},
        {"use_beam_search": True, "n": 2, "temperature": 0.0},
    ),
    "use_beam_search": Case({"use_beam_search": True}, {"use_beam_search": True}, {"n": 2}),
    "prompt_logprobs": Case({"prompt_logprobs": 4}, {"prompt_logprobs": 4}),
    "response_format.type": Case(
        {"response_format": {"type": "json_object"}}, grammar(json_object=True)
    ),
    "response_format.json_schema.schema": Case(
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        grammar(json=SCHEMA),
    ),
    "response_format.structures": Case({"response_format": TAG}, grammar(structural_tag=TAG)),
    "response_format.triggers": Case({"response_format": TAG}, grammar(structural_tag=TAG)),
    "response_format.format": Case({"response_format": NEW_TAG}, grammar(structural_tag=NEW_TAG)),
    "stream_options.include_usage": Case(
        {"stream_options": {"include_usage": True}}, needs={"stream": True}, why="the answer"
    ),
    "stream_options.continuous_usage_stats": Case(
        {"stream_options": {"continuous_usage_stats": True}},
        needs={"stream": True},
        why="the answer",
    ),
    "return_token_ids": Case({"return_token_ids": True}, why="the answer"),
    "return_tokens_as_token_ids": Case({"return_tokens_as_token_ids": True}, why="the answer"),
}
SCHEMA_WORDS: dict[str, Case] = {}
for _word, _value in {"name": "x", "description": "an x", "strict": True}.items():
    _schema = {"schema": SCHEMA}
    SCHEMA_WORDS[f"response_format.json_schema.{_word}"] = Case(
        {"response_format": {"type": "json_schema", "json_schema": _schema | {_word: _value}}},
        needs={"response_format": {"type": "json_schema", "json_schema": _schema}},
        why="a name for people, or what the engine does anyway",
    )

COMPLETIONS = SHARED | SCHEMA_WORDS | {
    "prompt": Case({"prompt": "Twice"}, {"prompt": f"{BOS}Twice"}),
    "prompt_embeds": Case(
        {"prompt_embeds": []}, why="this server takes none; test_prompt_embeds.py has one that does"
    ),
    "echo": Case({"echo": True}, why="the answer"),
    "logprobs": Case({"logprobs": 5}, {"logprobs": 5}),
    "max_tokens": Case({"max_tokens": 9}, {"max_tokens": 9}),
    "suffix": Case({"suffix": ""}, why="it is refused, but for an empty one"),
    "add_special_tokens": Case({"add_special_tokens": False}, {"prompt": "Once"}),
    "truncate_prompt_tokens": Case({"truncate_prompt_tokens": 2}, {"prompt": "ce"}),
    "truncation_side": Case(
        {"truncation_side": "right"}, {"prompt": f"{BOS}O"}, {"truncate_prompt_tokens": 2}
    ),
    "logprob_token_ids": Case(
        {"logprob_token_ids": [65, 66]},
        {"logprob_token_ids": [65, 66], "logprobs": None},
        {"logprobs": 1},
    ),
}  # fmt: skip

_CHOOSES = {"structured_outputs": holds("find_it")}
CHATTING = {
    "messages": Case(
        {"messages": [{"role": "user", "content": "Twice"}]}, {"prompt": "[user]Twice[assistant]"}
    ),
    "tools": Case({"tools": [TOOL]}, {"prompt": f"{CHAT}[tools]find_it;[assistant]"}),
    "chat_template_kwargs": Case(
        {"chat_template_kwargs": {"flavour": "mint"}},
        {"prompt": f"{CHAT}[flavour mint][assistant]"},
    ),
    "add_generation_prompt": Case({"add_generation_prompt": False}, {"prompt": CHAT}),
    "continue_final_message": Case(
        {"continue_final_message": True},
        {"prompt": CHAT},
        {"add_generation_prompt": False, "chat_template_kwargs": {"flavour": "mint"}},
    ),
    "add_special_tokens": Case({"add_special_tokens": True}, {"prompt": f"{BOS}{CHAT}[assistant]"}),
    "reasoning_effort": Case(
        {"reasoning_effort": "low"}, {"prompt": f"{CHAT}[effort low][assistant]"}
    ),
}
_PREDICTION = {"type": "content", "content": "Once upon"}
CHATS = SHARED | SCHEMA_WORDS | CHATTING | {
    "truncate_prompt_tokens": Case({"truncate_prompt_tokens": 2}, {"prompt": "t]"}),
    "truncation_side": Case(
        {"truncation_side": "right"}, {"prompt": "[u"}, {"truncate_prompt_tokens": 2}
    ),
    "logprob_token_ids": Case(
        {"logprob_token_ids": [65, 66]},
        {"logprob_token_ids": [65, 66], "logprobs": None},
        {"logprobs": True},
    ),
    "tool_choice": Case({"tool_choice": "required"}, _CHOOSES, {"tools": [TOOL]}),
    "parallel_tool_calls": Case({"parallel_tool_calls": False}, _CHOOSES, {"tools": [TOOL]}),
    "include_reasoning": Case({"include_reasoning": False}, why="the answer"),
    "prediction.type": Case({"prediction": _PREDICTION}, why="it has one value"),
    "prediction.content": Case(
        {"prediction": _PREDICTION}, why="an engine that guesses nothing does not read it"
    ),
    "documents": Case(
        {"documents": [{"title": "Tales"}]}, {"prompt": f"{CHAT}[documents]Tales;[assistant]"}
    ),
    "chat_template": Case({}, why="refused unless the operator trusts the clients' templates"),
    "echo": Case({"echo": True}, why="the answer"),
    "modalities": Case({"modalities": ["text"]}, why="there is nothing but text"),
    "logprobs": Case({"logprobs": True}, {"logprobs": 0}),
    "top_logprobs": Case({"top_logprobs": 3}, {"logprobs": 3}, {"logprobs": True}),
    "max_tokens": Case({"max_tokens": 9}, {"max_tokens": 9}),
    "max_completion_tokens": Case({"max_completion_tokens": 8}, {"max_tokens": 8}),
}  # fmt: skip

_ANSWER = {
    "metadata": {"a": "b"}, "user": "me", "prompt_cache_key": "k", "safety_identifier": "s",
}  # fmt: skip
_STORED = {name: Case({}, why="refused: nothing is stored") for name in (
    "background", "previous_response_id", "conversation", "prompt", "context_management",
)}  # fmt: skip
_FORMAT = {"type": "json_schema", "name": "x", "schema": SCHEMA}
RESPONSES = SAMPLING | _STORED | {
    "input": Case({"input": "Twice"}, {"prompt": "[user]Twice[assistant]"}),
    "instructions": Case(
        {"instructions": "Be brief."}, {"prompt": f"[system]Be brief.{CHAT}[assistant]"}
    ),
    "tools": Case({"tools": [FLAT_TOOL]}, {"prompt": f"{CHAT}[tools]find_it;[assistant]"}),
    "tool_choice": Case({"tool_choice": "required"}, _CHOOSES, {"tools": [FLAT_TOOL]}),
    "parallel_tool_calls": Case({"parallel_tool_calls": False}, _CHOOSES, {"tools": [FLAT_TOOL]}),
    "max_output_tokens": Case({"max_output_tokens": 9}, {"max_tokens": 9}),
    "text.format.type": Case(
        {"text": {"format": {"type": "json_object"}}}, grammar(json_object=True)
    ),
    "text.format.schema": Case({"text": {"format": _FORMAT}}, grammar(json=SCHEMA)),
    "reasoning.effort": Case(
        {"reasoning": {"effort": "low"}}, {"prompt": f"{CHAT}[effort low][assistant]"}
    ),
    "include": Case(
        {"include": ["message.output_text.logprobs"]},
        {"logprobs": 0, "output_kind": holds("DELTA")},
    ),
    "top_logprobs": Case(
        {"top_logprobs": 3}, {"logprobs": 3}, {"include": ["message.output_text.logprobs"]}
    ),
    "truncation": Case(
        {"truncation": "auto", "input": "x" * 600}, {"prompt": lambda one: len(one) == 511}
    ),
    "chat_template_kwargs": CHATTING["chat_template_kwargs"],
} | {name: Case({name: value}, why="the answer") for name, value in _ANSWER.items()} | {
    f"text.format.{word}": Case(
        {"text": {"format": _FORMAT | {word: value}}},
        needs={"text": {"format": _FORMAT}},
        why="a name for people, or what the engine does anyway",
    )
    for word, value in {"name": "y", "description": "a y", "strict": True}.items()
}  # fmt: skip

MESSAGES = {
    "model": SAMPLING["model"],
    "messages": CHATTING["messages"],
    "system": Case({"system": "Be brief."}, {"prompt": f"[system]Be brief.{CHAT}[assistant]"}),
    "tools": Case({"tools": [INPUT_TOOL]}, {"prompt": f"{CHAT}[tools]find_it;[assistant]"}),
    "tool_choice": Case({"tool_choice": {"type": "any"}}, _CHOOSES, {"tools": [INPUT_TOOL]}),
    "thinking.type": Case(
        {"thinking": {"type": "disabled"}}, {"prompt": f"{CHAT}[thinks False][assistant]"}
    ),
    "thinking.budget_tokens": Case(
        {"thinking": {"type": "enabled", "budget_tokens": 2}},
        needs={"thinking": {"type": "enabled"}},
        why="checked alone",
    ),
    "thinking.display": Case(
        {"thinking": {"type": "enabled", "display": "omitted"}},
        needs={"thinking": {"type": "enabled"}},
        why="the answer",
    ),
    "output_config.effort": Case(
        {"output_config": {"effort": "low"}}, {"prompt": f"{CHAT}[effort low][assistant]"}
    ),
    "output_config.format.type": Case({}, why="it has one value"),
    "output_config.format.schema": Case(
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        grammar(json=SCHEMA),
    ),
    "max_tokens": Case({"max_tokens": 9}, {"max_tokens": 9}),
    "stop_sequences": Case({"stop_sequences": ["!"]}, {"stop": ["!"]}),
    "temperature": SAMPLING["temperature"],
    "top_p": SAMPLING["top_p"],
    "top_k": SAMPLING["top_k"],
    "stream": SAMPLING["stream"],
}

POOLED = {
    "model": SAMPLING["model"],
    "truncate_prompt_tokens": Case({"truncate_prompt_tokens": 2}, {"prompt": "ce"}),
    "truncation_side": Case(
        {"truncation_side": "right"}, {"prompt": f"{BOS}O"}, {"truncate_prompt_tokens": 2}
    ),
    "padding": Case({"padding": "do_not_pad"}, why="nothing is ever padded"),
    "add_special_tokens": Case({"add_special_tokens": False}, {"prompt": "Once"}),
    "cache_salt": SAMPLING["cache_salt"],
    "priority": SAMPLING["priority"],
    "timeout": SAMPLING["timeout"],
    "request_id": SAMPLING["request_id"],
} | {
    name: Case({name: False}, {"use_activation": False, "normalize": False})
    for name in ("use_activation", "activation", "softmax")
}  # fmt: skip
_TALK = {"input": None, "messages": SAY}  # in place of the plain request's text
PROMPTS = POOLED | {
    "input": Case({"input": "Twice"}, {"prompt": f"{BOS}Twice"}),
    "messages": Case(_TALK, {"prompt": CHAT}),
    "chat_template": CHATS["chat_template"],
    "chat_template_kwargs": Case(
        {"chat_template_kwargs": {"flavour": "mint"}}, {"prompt": f"{CHAT}[flavour mint]"}, _TALK
    ),
    "add_generation_prompt": Case(
        {"add_generation_prompt": True}, {"prompt": f"{CHAT}[assistant]"}, _TALK
    ),
    "continue_final_message": Case(
        {"continue_final_message": True},
        {"prompt": CHAT},
        _TALK | {"chat_template_kwargs": {"flavour": "mint"}},
    ),
}
VECTORS = PROMPTS | {
    "encoding_format": Case({"encoding_format": "base64"}, why="the answer"),
    "embed_dtype": Case({"embed_dtype": "float16"}, why="the answer"),
    "endianness": Case({"endianness": "big"}, why="the answer"),
    "dimensions": Case({"dimensions": 5}, {"dimensions": 5}),
}
POOLING = VECTORS | {"task": Case({"task": "token_embed"}, {"task": "token_embed"})}
# A pair is one prompt of a reranker, and two of a model whose vectors are compared.
ONE_PAIR = {"text_1": "Once", "text_2": "Once"}
_NO_PAIR = dict.fromkeys(ONE_PAIR)
PAIRED = POOLED | {
    "max_tokens_per_query": Case({"max_tokens_per_query": 2}, {"prompt": f"{BOS}OnOnce"}),
    "max_tokens_per_doc": Case({"max_tokens_per_doc": 3}, {"prompt": f"{BOS}OnceOnc"}),
}
SCORES = PAIRED | {
    "text_1": Case({"text_1": "Twice"}, {"prompt": f"{BOS}TwiceOnce"}),
    "text_2": Case({"text_2": "Twice"}, {"prompt": f"{BOS}OnceTwice"}),
    "data_1": Case(
        {"data_1": "Twice"},
        {"prompt": f"{BOS}TwiceOnce"},
        _NO_PAIR | {"data_1": "Once", "data_2": "Once"},
    ),
    "data_2": Case(
        {"data_2": "Twice"},
        {"prompt": f"{BOS}OnceTwice"},
        _NO_PAIR | {"data_1": "Once", "data_2": "Once"},
    ),
    "queries": Case(
        {"queries": "Twice"},
        {"prompt": f"{BOS}TwiceOnce"},
        _NO_PAIR | {"queries": "Once", "items": "Once"},
    ),
    "documents": Case(
        {"documents": "Twice"},
        {"prompt": f"{BOS}OnceTwice"},
        _NO_PAIR | {"queries": "Once", "documents": "Once"},
    ),
    "items": Case(
        {"items": "Twice"},
        {"prompt": f"{BOS}OnceTwice"},
        _NO_PAIR | {"queries": "Once", "items": "Once"},
    ),
    "add_special_tokens": Case({"add_special_tokens": False}, {"prompt": "OnceOnce"}),
}
RANKS = PAIRED | {
    "query": Case({"query": "Twice"}, {"prompt": f"{BOS}TwiceOnce"}),
    "documents": Case({"documents": ["Twice"]}, {"prompt": f"{BOS}OnceTwice"}),
    "add_special_tokens": SCORES["add_special_tokens"],
    "top_n": Case({"top_n": 1}, why="the answer"),
}

WAYS = {
    "/v1/completions": Way(CompletionRequest, COMPLETIONS, {"prompt": "Once", "seed": 5}),
    "/v1/chat/completions": Way(ChatRequest, CHATS, {"messages": SAY, "seed": 5}),
    "/v1/responses": Way(ResponsesRequest, RESPONSES, {"input": "Once", "seed": 5}),
    "/v1/messages": Way(
        MessagesRequest, MESSAGES, {"model": "tiny", "messages": SAY, "max_tokens": 7}
    ),
    "/v1/embeddings": Way(EmbeddingRequest, VECTORS, {"input": "Once"}),
    "/pooling": Way(PoolingRequest, POOLING, {"input": "Once"}),
    "/classify": Way(ClassifyRequest, PROMPTS, {"input": "Once"}, "reranker"),
    "/v1/score": Way(ScoreRequest, SCORES, ONE_PAIR, "reranker"),
    "/v1/rerank": Way(RerankRequest, RANKS, {"query": "Once", "documents": ["Once"]}, "reranker"),
}
