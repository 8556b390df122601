"""Where the bugs of each folder are looked for: paths of tests.

A folder's own tests are those of the same name; `MORE` adds others, `CHOSEN` names a part of them.
"""

from tests.mutation.generated import FOLDERS
from tests.mutation.planting import ROOT

# Each bug of these is judged by `make mutation`, and of each other folder so many.
WHOLE = ("core", "tokenization", "sampling", "engine", "worker")
SOME = 100
PAIRS = (
    "tests/properties/test_block_manager_pair.py",
    "tests/properties/test_scheduler_pair.py",
    "tests/properties/test_overlap.py",
)
# Without a device, and so without compiling: most bugs of the engine are noticed there.
CHEAP = (
    "tests/properties/test_engine_shell.py",
    "tests/properties/test_client_view.py",
    "tests/simulation",
)
MORE = {
    "commands": ("tests/bench", "tests/serving/fields/test_file_fields.py"),
    "config": ("tests/engine", "tests/commands", "tests/speculation"),
    "core": PAIRS,
    "engine": ("tests/compat", "tests/guided", *CHEAP),
    "guided": ("tests/engine", "tests/sampling"),
    "layers": ("tests/models", "tests/worker", "tests/parallel/test_stages.py"),
    "loose": ("tests/engine", "tests/commands", "tests/compat", "tests/guided"),
    "lora": ("tests/worker/test_adapters.py", "tests/core/test_adapter_slots.py"),
    "operations": ("tests/weights", "tests/models", "tests/worker"),
    "processes": ("tests/serving/test_awake.py",),
    "sampling": ("tests/engine/test_logprobs.py", CHEAP[1]),
    "tokenization": (
        "tests/engine/test_llm_text.py",
        "tests/models/test_gguf_ends.py",
        CHEAP[1],
    ),
    "weights": ("tests/models/test_decoder.py",),
    "worker": ("tests/engine", "tests/models/test_decoder.py", *CHEAP),
}
# Without servers that are processes.
SERVING = (
    "fields",
    "test_anthropic.py",
    "test_app.py",
    "test_client_fields.py",
    "test_error_names.py",
    "test_hostile_bodies.py",
    "test_in_flight.py",
    "test_keep_alive.py",
    "test_lengths.py",
    "test_metrics_page.py",
    "test_odd_bodies.py",
    "test_odd_requests.py",
    "test_offers.py",
    "test_offsets.py",
    "test_openapi.py",
    "test_output_fields.py",
    "test_own_middleware.py",
    "test_pairs.py",
    "test_parts.py",
    "test_pooled_options.py",
    "test_pooling_api.py",
    "test_prompt_embeds.py",
    "test_request_log.py",
    "test_request_timings.py",
    "test_responses_api.py",
    "test_server_ends.py",
    "test_server_flags.py",
    "test_state.py",
    "test_stats_log.py",
    "test_text_encoder.py",
    "test_tools_of_apis.py",
    "test_unsound_requests.py",
    "test_vllm_fields.py",
    "tools",
)
CHOSEN = {"serving": (*(f"tests/serving/{name}" for name in SERVING), CHEAP[1])}


def tests_of(folder: str) -> tuple[str, ...]:
    """Paths of the tests that must notice the bugs of a folder of the engine."""
    own = f"tests/{folder}"
    named = (own,) if folder in FOLDERS and (ROOT / own).is_dir() else ()
    return CHOSEN.get(folder, (*named, *MORE.get(folder, ())))
