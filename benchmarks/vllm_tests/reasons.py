"""Why tests of vLLM's server are not run, or fail, here."""

import re

IMAGES = "images, audio and video are not here"
LORA = "it needs adapters of another model, from the hub"
SENSE = "what SmolLM2 says: the test wants the sense of a larger model"
COUNTS = "exact counts of tokens or vectors of the test's own model"
TENSORS = "it makes tensors with PyTorch and a model from the hub; `tests/serving` has such prompts"
INSIDE = "it asks vLLM's classes and no server"
WORDS = "the error is the same, in words of this server and not of pydantic"
LONGER = "the prompt has more of SmolLM2's tokens than of the test's model's, and does not fit"
THINKS = "SmolLM2 does not reason: it opens no thought, or does not close the one that it may open"
CUT = "SmolLM2 comes to no end: the answer is cut"
CACHED = "tokens from the cache are counted in every answer, which vLLM does with a flag"

# Files that are not run: parts of paths.
OUT = {
    "vision": IMAGES,
    "vlm": IMAGES,
    "multimodal": IMAGES,
    "extra_content_fields": IMAGES,
    "lora": LORA,
    "chat_completion_with_prompt_embeds": "tensors within a conversation are not here",
    "prompt_embeds": TENSORS,
    "completion/test_prompt_validation": TENSORS,
    "tensorizer": "files of tensorizer are not here",
    "mteb": "it needs a benchmark's data from the hub",
    "v1/sample": "it needs a benchmark's data from the hub",
    "lmeval": "it needs a benchmark's data from the hub",
    "sagemaker": "handlers of Amazon SageMaker are not here",
    "test_harmony_utils": INSIDE,
    "input_to_harmony": INSIDE,
    "test_harmony": "it needs gpt-oss-20b itself, and tools that vLLM's server runs "
    "(`--tool-server`)",
    "mcp_tools": "it needs gpt-oss-20b itself, and servers of tools",
    "parsable_context": "it needs servers of tools that vLLM starts",
    "dev/rpc": "calls into vLLM's workers are not here",
    "decisions": "structured decisions are not here",
    "late_interaction": "it needs a model of ColBERT's kind",
    "cohere_online.py": "Cohere's `/v2/embed` is not here",
    "cohere_openai_parity": "Cohere's API is not here",
    "mistral": "it needs Mistral's own tokenizer files",
    "test_openai_schema": "schemathesis asks this server in `.ci/clients`",
    "batched_chat": "vLLM's `/v1/chat/completions/batch` is not here",
    "token_in_token_out/test_serving_tokens": "vLLM's `/inference/v1/generate` is not here",
    "thinking_token_budget": THINKS,
    "test_serving_chat": INSIDE,
    "responses/test_function_call_parsing": INSIDE,
    "responses/test_namespace": INSIDE,
    "responses/test_protocol": INSIDE,
    "responses/test_response_input": INSIDE,
    "responses/test_responses_utils": INSIDE,
    "responses/test_sampling_params": INSIDE,
    "responses/test_serving_responses": INSIDE,
    "responses/test_streaming_events": INSIDE,
    "responses/test_errors": INSIDE,
    "test_chat_completion_request_validations": INSIDE,
    "test_responses_request_validations": INSIDE,
    "test_tool_choice_required": INSIDE,
    "kimi_k3": INSIDE,
    "muse": INSIDE,
    "gemma4": INSIDE,
}

# Tests that fail: what `path::test` and the error have in them, and why. The first one counts.
FAILS: tuple[tuple[str, str, str], ...] = (
    ("zephyr-lora", "", LORA),
    ("multimodal\\]", "", IMAGES),
    ("kv_transfer", "", "KV caches of other machines are not here"),
    ("per_request_metrics", "", "times were in `/metrics` only when this was measured"),
    ("orca.*test_single", "", CACHED),
    ("orca", "", "headers with the load, in ORCA's format, are not here"),
    (
        "test_metrics_counts",
        "iteration_tokens",
        "the tokens that steps compute are counted, which "
        "are fewer than prompts and outputs: an answer's last token is not computed",
    ),
    (
        "tool_use",
        "tool-call-parser: invalid",
        "this form of calls of tools is not read here",
    ),
    ("responses/test_stateful", "", "responses are not stored, so there is none to go on with"),
    ("test_models", "", "the answer names the folder of the model that stands for the test's"),
    ("", "enable_response_messages", "`enable_response_messages` is not here"),
    ("test_v2_endpoint", "404", "Cohere's `/v2/embed` is not here"),
    (
        "anthropic.*stream",
        "",
        "`message_start` counts as Anthropic does: `input_tokens` without "
        "those from the cache. Tokens written to the cache are not counted",
    ),
    ("test_single_chat_session", "", COUNTS),
    ("prompt_logprobs_chat", "", SENSE),
    ("test_long_seed|params_not_supported", "", WORDS),
    ("parameter_exceeds_default", "", "it asks vLLM's classes and no server"),
    ("include_reasoning|reasoning_tokens", "", SENSE),
    ("score|rerank", "detail", "an error has OpenAI's form, not FastAPI's `detail`"),
    ("pooling_not_supported", "KeyError", "this server does both: the model has states and a head"),
    (
        "",
        "== 'BadRequestError'",
        "the error's type is OpenAI's (`invalid_request_error`)",
    ),
    ("test_max_truncation_size", "", "a prompt leaves room for one token, also if none follows"),
    ("truncate", "200 == 400", "a cut longer than `max_model_len` cuts nothing, and is no error"),
    ("pooling.*chat_request", "400", "conversations are for chats, not for vectors and classes"),
    ("test_padding", "do_not_pad", "prompts are not padded: it changes no vector"),
    ("late_chunking|without_chunking", "", "late chunking is not here"),
    ("long_text", "", "texts longer than the model are not cut up (`enable_chunked_processing`)"),
    ("negative_token_ids", "", WORDS),
    ("", "queries is not a field", "`/score` takes texts as `text_1` and `text_2` only"),
    ("max_model_len", "Please reduce", WORDS),
    ("max_tokens_per_doc_validation", "", WORDS),
    ("scoring.*use_activation", "", "scores are always probabilities"),
    ("rerank_api", ">= 0.9", SENSE),
    (
        "test_pooling_token_classify",
        "attribute 'data'",
        "a head that classifies whole texts is not applied to each token",
    ),
    ("pooling", "object.__init__", "it compares with transformers, which it wants from vLLM"),
    ("token_embed", "assert 14", COUNTS),
    (
        "without_chunking",
        "",
        "`/v1/embeddings` gives no vectors of tokens",
    ),
    ("pooling", "test_.*py:\\d+$", "it compares with transformers, which it wants from vLLM"),
    ("pooling", "Missing", "it compares with transformers, which it wants from vLLM"),
    ("pooling", "assert \\[|LABEL_|== 384|== \\d+|KeyError", COUNTS),
    ("token_classify", "", COUNTS),
    ("", "PIL|No module named", "it needs packages that are not in the environment"),
    (
        "test_request_cancellation",
        "timed out",
        "a server's first steps take seconds on the machine above, which other programs used; "
        "later, 200 cancelled requests delay an answer by less than a second",
    ),
    ("", "Timeout", "SmolLM2 does not come to its end in time on the machine above"),
    ("tool_use", "must be at most", LONGER),
    ("tool_use", "'NoneType' has no len", SENSE),
    ("with_function_calling", "\\)\\.reasoning", THINKS),
    ("function_calling.py::test_function_tool_use\\[.*auto", "", SENSE),
    ("function_calling.py::test_(function_tool_use|named_tool_use)", "", THINKS),
    ("", "'response.created'|'length' == 'stop'", CUT),
    ("structured_output", "JSONDecodeError", THINKS),
    ("entrypoints/(openai|anthropic)|tool_use", "assert|Expected", SENSE),
)


def out(path: str) -> str:
    """Why a file is not run; empty: it is."""
    return next((reason for part, reason in OUT.items() if part in path), "")


def why(path: str, test: str, said: str) -> str:
    """Why a test fails; empty: nobody has found out."""
    for place, error, reason in FAILS:
        if re.search(place, f"{path}::{test}") and re.search(error, said):
            return reason
    return ""
