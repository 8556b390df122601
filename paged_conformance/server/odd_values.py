"""Values in range, at its ends, out of it and of other types, for each field of a request.

Fields stand in groups that are computed together, since values that are harmless alone may not be
so beside each other.
"""

from typing import Any

from hypothesis import strategies as st

HUGE = (2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30)
INTEGERS = (0, 1, 2, 3, 7, -1, -2, -100, *HUGE)
NUMBERS = (
    float("nan"),
    0,
    0.0,
    1,
    0.5,
    1e-9,
    1e-45,
    1e-320,
    -1e-9,
    -0.5,
    -1,
    1.0000001,
    2,
    2.5,
    1e3,
    1e30,
    1e308,
    1e999,
)
# Of a vocabulary, of a larger one, of none, and of no integer of 64 bits.
TOKENS = (
    0, 1, 2, 5, 40, 255, 256, 257, 258, 511, 512, 1000, 31999, 32000, 128000, 151645, 10**6, 10**7,
    10**8, 10**9, -1, -2, *HUGE,
)  # fmt: skip
FLAGS = (True, False)
STRINGS = ("", "a", "e", " ", "\n", "\0", "é", "🙂", "\ud83d", "</s>", "a" * 5000)
STRANGE: tuple[Any, ...] = (
    None,
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    True,
    "1",
    -1,
    1.5,
    [1, "a"],
)

type Values = st.SearchStrategy[Any]


def _of(*values: Any) -> Values:
    return st.sampled_from(values)


def _list(values: tuple[Any, ...], most: int = 4) -> Values:
    few = st.lists(st.sampled_from(values), max_size=most)
    return st.one_of(few, st.sampled_from(values).map(lambda value: [value]))


TOKEN_KEYS = (*map(str, TOKENS), "a", "", "1.5")
BIASES = st.dictionaries(
    _of(*TOKEN_KEYS), _of(0, 1, -100, 100, 101, 1e30, 1e999, None, "x"), max_size=3
)
STOPS = st.one_of(_of(*STRINGS), _list(STRINGS, 6), st.just(["\u2603"] * 300))
STREAM_OPTIONS = _of(
    None,
    {},
    {"include_usage": True},
    {"include_usage": "x"},
    {"continuous_usage_stats": True},
    {"include_usage": True, "continuous_usage_stats": True},
)


def _small(low: int, high: int, *odd: Any) -> Values:
    """Half of the values are in range, so that another field's may be the only odd one."""
    return st.one_of(st.integers(low, high), st.sampled_from(odd or INTEGERS))


GROUPS: dict[str, dict[str, Values]] = {
    "ends": {
        "stop": STOPS,
        "stop_token_ids": _list(TOKENS),
        "min_tokens": _small(0, 6),
        "max_tokens": _small(4, 12),
        "ignore_eos": _of(*FLAGS),
        "include_stop_str_in_output": _of(*FLAGS),
    },
    "tokens": {
        "logit_bias": BIASES,
        "allowed_token_ids": _list(TOKENS),
        "bad_words": _list(STRINGS),
        "min_tokens": _small(0, 6),
        "skip_special_tokens": _of(*FLAGS),
        "spaces_between_special_tokens": _of(*FLAGS),
        "detokenize": _of(*FLAGS),
    },
    "sampling": {
        "temperature": _of(*NUMBERS),
        "top_p": _of(*NUMBERS),
        "top_k": _small(-1, 5),
        "min_p": _of(*NUMBERS),
        "typical_p": _of(*NUMBERS),
        "seed": _small(0, 9, *INTEGERS, -(2**63), -(2**63) - 1),
    },
    "penalties": {
        "temperature": _of(*NUMBERS),
        "presence_penalty": _of(*NUMBERS, -2),
        "frequency_penalty": _of(*NUMBERS, -2),
        "repetition_penalty": _of(*NUMBERS),
        "length_penalty": _of(*NUMBERS),
        "logprobs": _of(1, 3, True),
    },
    "samples": {
        "n": _small(1, 3, 0, -1, 2**31, 10**30),
        "best_of": _small(1, 4, 0, -1, 10**30),
        "use_beam_search": _of(*FLAGS),
        "temperature": _of(0, 1),
        "seed": _small(0, 9),
        "stream": _of(*FLAGS),
        "logprobs": _small(0, 3),
        "echo": _of(*FLAGS),
    },
    "told": {
        "logprobs": _small(0, 5, *FLAGS, *INTEGERS),
        "top_logprobs": _small(0, 5),
        "prompt_logprobs": _small(0, 5),
        "logprob_token_ids": _list(TOKENS),
        "echo": _of(*FLAGS),
        "return_token_ids": _of(*FLAGS),
        "return_tokens_as_token_ids": _of(*FLAGS),
        "stream": _of(*FLAGS),
        "max_tokens": _of(0, 1, 2, 5),
    },
    "streams": {
        "stream": _of(True, True, False),
        "stream_options": STREAM_OPTIONS,
        "n": _of(1, 2, 3),
        "echo": _of(*FLAGS),
        "max_tokens": _of(0, 1, 2, 5),
        "max_completion_tokens": _small(1, 6),
        "suffix": _of(*STRINGS),
        "stop": STOPS,
    },
    "prompts": {
        "truncate_prompt_tokens": _small(-1, 8),
        "truncation_side": _of("left", "right", "middle"),
        "add_special_tokens": _of(*FLAGS),
        "prompt_logprobs": _of(0, 1, 3),
        "echo": _of(*FLAGS),
        "prompt_embeds": _of("", "AAAA", "x", ["AAAA"], 5),
        "cache_salt": _of(*STRINGS),
    },
    "templates": {
        "add_generation_prompt": _of(*FLAGS),
        "continue_final_message": _of(*FLAGS),
        "chat_template": _of("", "{{", "{% for %}", "{{ 1 / 0 }}", "{{ messages }}"),
        "chat_template_kwargs": _of({}, {"messages": 1}, {"tokenize": True}, {"tools": 5}),
        "mm_processor_kwargs": _of({}, {"a": 1}),
        "echo": _of(*FLAGS),
    },
    "ways": {
        "priority": _of(*INTEGERS),
        "user": _of(*STRINGS),
        "request_id": _of("a", "b", "", "a" * 300),
        "kv_transfer_params": _of(
            {}, {"do_remote_decode": True}, {"do_remote_prefill": True, "remote_block_ids": [1]}
        ),
        "vllm_xargs": _of({}, {"a": 1}, {"a": [1]}),
        "stream": _of(*FLAGS),
        "n": _of(1, 2),
    },
    "calls": {
        "tools": _of(
            [],
            [{}],
            [{"type": "function", "function": {"name": "f"}}],
            [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
            [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}],
            [{"type": "function", "function": {"name": "", "parameters": {}}}],
            [{"type": "function", "function": {"name": "f", "parameters": []}}],
        ),
        "tool_choice": _of(
            "none",
            "auto",
            "required",
            "x",
            {},
            {"type": "function"},
            {"type": "function", "function": {"name": "f"}},
            {"type": "function", "function": {"name": "g"}},
        ),
        "parallel_tool_calls": _of(*FLAGS),
        "functions": _of([], [{"name": "f", "parameters": {}}]),
        "stream": _of(*FLAGS),
        "min_tokens": _of(0, 4, 20),
    },
    "forms": {
        "response_format": _of(
            {"type": "text"}, {"type": "json_object"}, {"type": "x"}, {}, {"type": "json_schema"}
        ),
        "structured_outputs": _of(
            {}, {"json_object": True}, {"choice": ["a"], "regex": "b"}, {"x": 1}
        ),
        "max_tokens": _of(1, 4, 12),
        "min_tokens": _of(0, 4, 20),
        "stop": STOPS,
        "reasoning_effort": _of("low", "none", "x", 5),
        "include_reasoning": _of(*FLAGS),
        "thinking_token_budget": _small(0, 4),
    },
}

# Values that no server refuses for themselves, if it knows the field.
IN_ORDER: dict[str, tuple[Any, ...]] = {
    "stop": ("\u2603", ["a", "\u2603"]), "stop_token_ids": ([5], [5, 6]), "min_tokens": (1, 4),
    "max_tokens": (1, 5, 8), "max_completion_tokens": (1, 5), "ignore_eos": FLAGS,
    "include_stop_str_in_output": FLAGS, "logit_bias": ({"5": 1}, {"5": -100, "6": 2.5}),
    "allowed_token_ids": ([5, 6, 7],), "bad_words": (["a"], ["one"]), "temperature": (0, 0.7, 1),
    "skip_special_tokens": FLAGS, "spaces_between_special_tokens": FLAGS, "top_p": (0.5, 1),
    "top_k": (1, 5), "min_p": (0, 0.1), "seed": (0, 7), "presence_penalty": (0.5, -1),
    "frequency_penalty": (0.5, -1), "repetition_penalty": (1.2,), "length_penalty": (1.0,),
    "n": (1, 2), "use_beam_search": FLAGS, "stream": FLAGS, "logprobs": (1, 3, True),
    "top_logprobs": (1, 2), "prompt_logprobs": (0, 1), "echo": FLAGS, "return_token_ids": FLAGS,
    "return_tokens_as_token_ids": FLAGS, "stream_options": ({"include_usage": True},),
    "suffix": ("a",), "truncate_prompt_tokens": (2,), "truncation_side": ("left", "right"),
    "add_special_tokens": FLAGS, "cache_salt": ("a",), "add_generation_prompt": FLAGS,
    "priority": (0, 1), "user": ("a",), "request_id": ("a",), "parallel_tool_calls": FLAGS,
    "tool_choice": ("none", "auto"), "response_format": ({"type": "text"},
    {"type": "json_object"}), "structured_outputs": ({"choice": ["a", "b"]}, {"regex": "a+"}),
    "include_reasoning": FLAGS, "reasoning_effort": ("low",), "thinking_token_budget": (1,),
}  # fmt: skip

# Letters of any script would do, but their tables take seconds to make.
LETTERS = 'aZ09 é漢🙂\u0301\u200d\ufe0f\u202e\ufeff\ufffd\0\x1b\x7f\n\\"{}<|>\ud800\udc00'
TEXTS = st.one_of(st.sampled_from(STRINGS), st.text(LETTERS, max_size=12))
PROMPTS = st.one_of(
    TEXTS,
    st.lists(TEXTS, max_size=3),
    _list(TOKENS, 6),
    st.lists(_list(TOKENS, 3), max_size=3),
    st.sampled_from(STRANGE),
    st.sampled_from(["a b " * 20_000, ["x"] * 300, [5] * 100_000]),
)
CONTENTS = st.one_of(
    TEXTS,
    st.sampled_from(STRANGE),
    st.lists(st.builds(lambda text: {"type": "text", "text": text}, TEXTS), max_size=3),
    st.just([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]),
    st.just([{"type": "strange", "strange": 1}]),
)
MESSAGES = st.one_of(
    st.lists(
        st.fixed_dictionaries(
            {
                "role": _of("user", "system", "assistant", "tool", "developer", "x", "", None),
                "content": CONTENTS,
            },
            optional={
                "name": TEXTS,
                "tool_calls": st.sampled_from(STRANGE),
                "tool_call_id": TEXTS,
                "prefix": _of(True),
            },
        ),
        max_size=3,
    ),
    st.sampled_from(STRANGE),
    st.just([{"role": "user", "content": "hello " * 30_000}]),
)
