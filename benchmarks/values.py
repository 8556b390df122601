"""Figures within a sentence: `{{ value decode_ms }}` in a page of docs/ is VALUES["decode_ms"]().

Each is worked out from benchmarks/results/ when the site is built, with as many digits as the
sentence needs. A result that is not there ends the build.
"""

import re
from collections.abc import Callable, Iterable
from math import ceil
from typing import Any

from benchmarks.compiled_gpu import adapted_launches, layer_launches
from benchmarks.gpu_tables import H100, H200, PROFILED
from benchmarks.paper.tables import rounded
from benchmarks.replicas import table as replicas
from benchmarks.report import ROOT, load_result
from benchmarks.several_gpus_tables import kernel_saves
from playground.tiny_llama import FILE, read_file

DECODES = ("decode_1", "decode_8", "decode_32")
ATTENTION = "attention over pages"
LAYERS = 30  # of SmolLM2
GPU_LAYERS = 16  # of Llama-3.2-1B
GPU_CODES = ("int8", "int4 [4096, 4096], groups of 128", "int4 [4096, 4096], groups of 32")
COPIED_GB = 2 * 16_384 * 46_080 / 1e9
"""A KV cache of 16,384 tokens of SmolLM2 in float32, read and written."""
CELL = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _of(file: str, *keys: str) -> Any:
    """A number in a results file."""
    found = load_result(file)["result"]
    for key in keys:
        found = found[key]
    return found


def _step(*keys: str) -> Any:
    return _of("step_profile", *keys)


def _share(step: str, *parts: str) -> float:
    """Per cent of a step that parts of it take."""
    return float(100 * sum(_step(step, "parts", p, "ms") for p in parts)) / float(
        _step(step, "sum_of_parts_ms")
    )


def _range(numbers: Iterable[float], digits: str) -> str:
    """From the least to the greatest; one number where both are written alike."""
    found = list(numbers)
    low, high = format(min(found), digits), format(max(found), digits)
    return low if low == high else f"{low} to {high}"


def _replicas(rule: str, what: str) -> float:
    """With the most replicas that were simulated."""
    return replicas.figure(rule, replicas.most(), what)


def _paper(figure: str, *rows: str) -> list[float]:
    """Our numbers in a figure of the paper."""
    found = {row["what"]: row["ours"] for row in _of("paper", figure, "rows")}
    return [found[row] for row in rows]


def _paper_off(figure: str, pattern: str) -> str:
    """The greatest distance from the paper, in percent, of a figure's numbers of such names."""
    return f"{_farthest(figure, pattern):.0f}"


def _paper_within(figure: str, pattern: str) -> str:
    """The same for `within`: rounded up, so that it holds."""
    return f"{ceil(_farthest(figure, pattern))}"


def _farthest(figure: str, pattern: str) -> float:
    rows = [row for row in _of("paper", figure, "rows") if re.search(pattern, row["what"])]
    return max(abs(float(row["distance_percent"])) for row in rows if row["paper"])


def _paper_of(figure: str, row: str) -> str:
    """As the figure's table says it."""
    return rounded(_paper(figure, row)[0])


def _saved(figure: str, what: str) -> str:
    return _range(_paper(figure, *(f"{what}, {n} outputs" for n in (2, 4, 6))), ".0f")


def _unfilled(size: int) -> str:
    return f"{_paper('2-measured', f'B = {size}, unfilled rest of blocks')[0]:.1f}"


def _over_bound() -> str:
    parts = [_step(name, "parts", ATTENTION) for name in DECODES]
    return _range([part["ms"] / part["bound_ms"] for part in parts], ".1f")


def _attention(what: str) -> float:
    """Attention's part of a step of 32 sequences, all layers together."""
    return float(_step("decode_32", "parts", ATTENTION, what))


def _prefix_over_vllm() -> str:
    files = ("compare_W5_float32", "compare_W5_bfloat16")
    return _range([_of(file, "peers", "vllm", "ours_over_this") for file in files], ".2f")


def _perplexity(case: str) -> str:
    return f"{_of('accuracy_quantised', 'cases', case, 'perplexity'):.1f}"


def _four_bits_above() -> str:
    """Percent that rounding to 4 bits in any way adds to the perplexity."""
    cases = ("Q4_0", "w4a16", "w4a16-gptq", "w4a16-awq")
    found = [
        _of("accuracy_quantised", "cases", one, "perplexity_above_float_percent") for one in cases
    ]
    return _range(found, ".0f")


def _q4_1(peer: str, what: str) -> float:
    """A figure of one request (W2) on the default model's own file, Q4_1."""
    return float(_of("quantised_files", "Q4_1 W2", "peers", peer, what))


def _codes_over_bfloat16(workload: str) -> float:
    peers = _of("quantised_files", f"Q4_1 {workload}", "peers")
    return float(peers["ours-dequantized"]["ours_over_this"])


def _padding(figure: str) -> str:
    """Mean tokens of a step with prompts, real or padded."""
    return f"{load_result('padding')['result'][figure]}"


def _gpu_us(shape: str, method: str) -> float:
    """The last measurement of a kernel on an H100."""
    return float(_gpu_row(shape, method)["us"])


def _gpu_row(shape: str, method: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = load_result(H100)["rows"]
    return [row for row in rows if row["shape"].startswith(shape) and row["method"] == method][-1]


def _gpu_xla_over(method: str, *shapes: str) -> str:
    return _range([_gpu_us(one, "xla") / _gpu_us(one, method) for one in shapes], ".0f")


def _gpu_bfloat16_us() -> float:
    """To read a matrix of 4,096 x 4,096 in bfloat16 as fast as a copy."""
    return float(1e6 * 2 * 4096**2 / load_result(H100)["card"]["copy_bytes_per_s"])


def _gpu_step(case: str) -> dict[str, Any]:
    found: dict[str, Any] = load_result(H100)["models"][PROFILED]["profile"][case]
    return found


def _gpu_kernels_percent() -> float:
    """What the kernels take of a step that decodes one sequence."""
    step = _gpu_step("decode of 1")
    kernels = sum(part["ms"] for name, part in step["parts"].items() if name != "dispatch")
    return float(100 * kernels / step["device_ms"])


def _gpu_ahead_saves() -> str:
    """Percent of a step of 256 sequences that planning ahead saves."""
    models = load_result(H100)["models"].values()
    found = [one["host time hidden"]["256_running"] for one in models]
    return _range([100 * (1 - one["step_on_ms"] / one["step_off_ms"]) for one in found], ".0f")


def _h200_torch(model: str) -> float:
    """Tokens a second of PyTorch's decode loop with the shapes of a model."""
    peers: dict[str, dict[str, float]] = load_result(H200)["peers"]
    return peers["torch.compile, decode of 1, tokens/s"][model]


def _h200_graph_ms(what: str) -> float:
    """A figure of the small model's decode of one sequence, with the default's graphs."""
    ways: dict[str, dict[str, float]] = load_result(H200)["models"][PROFILED]["graphs"][
        "decode of 1"
    ]
    return ways["PIECEWISE"][what]


def _h200_drafts(who: str) -> float:
    """Tokens a second of the small model with a draft model."""
    found: dict[str, float] = load_result(H200)["models"][PROFILED]["draft model"]
    return found[f"tokens_per_s, {who}"]


def _one_page_lines() -> str:
    """Lines that are not empty, in all cells but the one that checks the engine."""
    page = (ROOT / "docs" / "tutorial" / "one-page.md").read_text("utf-8")
    cells = [cell for cell in CELL.findall(page) if "def alone(" not in cell]
    return str(sum(bool(line.strip()) for cell in cells for line in cell.splitlines()))


def _burst(load: str, figure: str) -> str:
    """Milliseconds until `/health` answers beside a load."""
    return f"{_of('server_burst', load, f'health_{figure}_ms'):.0f}"


def _busy(interval_ms: float) -> str:
    """Percent of the tokens a second that are left beside a main thread that computes."""
    ratio = _of("busy_thread", f"switch_interval_{interval_ms:g}_ms", "busy_to_idle")
    return f"{100 * ratio:.0f}"


VALUES: dict[str, Callable[[], str]] = {
    # A step, and the machine that it was measured on
    "matrix_gflop_per_s": lambda: f"{_step('matrix_rate_gflop_per_s'):.0f}",
    "read_gb_per_s": lambda: f"{_step('read_bandwidth_gb_per_s'):.1f}",
    "operations_per_byte": lambda: (
        f"{_step('matrix_rate_gflop_per_s') / _step('read_bandwidth_gb_per_s'):.0f}"
    ),
    "decode_ms": lambda: f"{_step('decode_1', 'step_ms'):.1f}",
    "prompt_ms": lambda: f"{_step('prefill_512', 'step_ms'):.0f}",
    "cache_copy_ms": lambda: f"{1000 * COPIED_GB / _step('read_bandwidth_gb_per_s'):.0f}",
    "attention_percent_1": lambda: f"{_share('decode_1', ATTENTION):.0f}",
    "attention_percent_32": lambda: f"{_share('decode_32', ATTENTION):.0f}",
    "attention_over_reading": _over_bound,
    "attention_layer_ms": lambda: f"{_attention('ms') / LAYERS:.2f}",
    "attention_layer_bound_ms": lambda: f"{_attention('bound_ms') / LAYERS:.2f}",
    "attention_gb_per_s": lambda: (
        f"{_step('read_bandwidth_gb_per_s') * _attention('bound_ms') / _attention('ms'):.0f}"
    ),
    "host_percent": lambda: _range(
        [_share(name, "schedule", "prepare", "process") for name in DECODES], ".0f"
    ),
    "host_ms_1": lambda: f"{_of('host_time', '1_running', 'total_us') / 1000:.1f}",
    "host_ms_256": lambda: f"{_of('host_time', '256_running', 'total_us') / 1000:.1f}",
    # Replicas behind a router
    "replicas_most": lambda: f"{int(replicas.most()):,}",
    "replicas_cached_one": lambda: f"{replicas.figure('both', '1', 'cached_percent'):.0f}",
    "replicas_cached_blind": lambda: f"{_replicas('least loaded', 'cached_percent'):.0f}",
    "replicas_cached_both": lambda: f"{_replicas('both', 'cached_percent'):.0f}",
    "replicas_blind_percent": lambda: f"{replicas.goodput_left('least loaded'):.0f}",
    "replicas_both_percent": lambda: f"{replicas.goodput_left('both'):.0f}",
    "replicas_prefix_percent": lambda: f"{replicas.goodput_left('prefix'):.0f}",
    "replicas_longer_apart": lambda: f"{ceil(replicas.longer_apart_percent())}",
    # Whole workloads
    "prefix_over_vllm": _prefix_over_vllm,
    "guided_over_free_1": lambda: f"{_of('guided', 'batch_1', 'guided_step_ratio'):.2f}",
    "guided_over_free_8": lambda: f"{_of('guided', 'batch_8', 'guided_step_ratio'):.2f}",
    "mask_ms_1": lambda: f"{_of('guided', 'batch_1', 'guided_mask_ms'):.1f}",
    "mask_ms_8": lambda: f"{_of('guided', 'batch_8', 'guided_mask_ms'):.1f}",
    "hellaswag_percent": lambda: f"{_of('accuracy', 'HellaSwag', 'ours_percent'):.0f}",
    "truthfulqa_percent": lambda: f"{_of('accuracy', 'TruthfulQA-MC1', 'ours_percent'):.0f}",
    "sampler_row_by_row_ms": lambda: f"{_of('sampler', 'filters_64', 'row_by_row_ms'):.0f}",
    "sampler_all_rows_ms": lambda: f"{_of('sampler', 'filters_64', 'all_rows_ms'):.0f}",
    "sampler_xla_ms": lambda: f"{_of('sampler', 'filters_64', 'xla_ms'):.0f}",
    "sampler_kernel_ms": lambda: f"{_of('sampler', 'filters_64', 'kernel_ms'):.1f}",
    "first_start_s": lambda: f"{_of('first_start', 'first_first_token_s'):.0f}",
    "sampler_greedy_xla_ms": lambda: f"{_of('sampler', 'greedy_64', 'xla_ms'):.1f}",
    "sampler_greedy_kernel_ms": lambda: f"{_of('sampler', 'greedy_64', 'kernel_ms'):.1f}",
    "sampler_plain_xla_ms": lambda: f"{_of('sampler', 'temperature_64', 'xla_ms'):.1f}",
    "sampler_plain_kernel_ms": lambda: f"{_of('sampler', 'temperature_64', 'kernel_ms'):.1f}",
    # Kernels of a CPU
    "experts_gb_per_s": lambda: f"{_of('experts', 'read_bandwidth_gb_per_s'):.0f}",
    # Weights in codes
    "perplexity_float": lambda: _perplexity("float32"),
    "perplexity_q8": lambda: _perplexity("Q8_0"),
    "perplexity_q4": lambda: _perplexity("Q4_0"),
    "perplexity_rtn": lambda: _perplexity("w4a16"),
    "perplexity_gptq": lambda: _perplexity("w4a16-gptq"),
    "perplexity_awq": lambda: _perplexity("w4a16-awq"),
    "perplexity_4_bits_above": _four_bits_above,
    "perplexity_w8a8": lambda: _perplexity("w8a8"),
    "perplexity_smooth": lambda: _perplexity("w8a8-smooth"),
    "codes_megabytes": lambda: f"{_q4_1('ours', 'bytes_per_token') / 1e6:.0f}",
    "bfloat16_megabytes": lambda: f"{_q4_1('ours-dequantized', 'bytes_per_token') / 1e6:.0f}",
    "codes_tokens_per_s": lambda: f"{_q4_1('ours', 'output_tokens_per_s'):.0f}",
    "bfloat16_tokens_per_s": lambda: f"{_q4_1('ours-dequantized', 'output_tokens_per_s'):.0f}",
    "codes_over_bfloat16_1": lambda: f"{_codes_over_bfloat16('W2'):.1f}",
    "codes_over_bfloat16_32": lambda: f"{_codes_over_bfloat16('W1'):.2f}",
    # An H100
    "h100_errors": lambda: _range(
        [1e3 * float(error) for error in load_result(H100)["errors"].values()], ".1f"
    ),
    "h100_xla_over_triton": lambda: _gpu_xla_over("triton", "64 x 1+4095", "1 x 1+65535"),
    "h100_xla_over_mosaic": lambda: _gpu_xla_over("mosaic", "1 x 8192+0"),
    "h100_product_percent": lambda: _range(
        [_gpu_row(f"1 x 4096, {one}", "mosaic")["percent_of_limit"] for one in GPU_CODES], ".0f"
    ),
    "h100_bfloat16_us": lambda: f"{_gpu_bfloat16_us():.1f}",
    "h100_kv_write_us": lambda: (
        f"{1e3 * _gpu_step('decode of 1')['parts']['KV write']['ms'] / GPU_LAYERS:.1f}"
    ),
    "h100_kernels_percent": lambda: f"{_gpu_kernels_percent():.0f}",
    "h100_ahead_saves": _gpu_ahead_saves,
    "h200_tests": lambda: str(load_result(H200)["tests"]["pytest"]),
    "h200_torch_8b": lambda: f"{_h200_torch('Llama-3.1-8B'):.0f}",
    "h200_torch_1b": lambda: f"{_h200_torch('Llama-3.2-1B'):.0f}",
    "h200_enqueue": lambda: f"{_h200_graph_ms('enqueue_ms'):.1f}",
    "h200_queued": lambda: f"{_h200_graph_ms('queued_ms'):.1f}",
    "h200_drafts_device": lambda: f"{_h200_drafts('the device accepts'):.0f}",
    "h200_drafts_host": lambda: f"{_h200_drafts('the host accepts'):.0f}",
    "adapted_launches": adapted_launches,
    "kernel_saves": kernel_saves,
    "layer_launches": layer_launches,
    "padding_tokens": lambda: _padding("tokens"),
    "padding_before": lambda: _padding("padded_as_on_a_cpu"),
    "padding_now": lambda: _padding("padded_as_on_a_gpu"),
    # The paper's figures
    "paper_off_2_tokens": lambda: _paper_within("2", ", tokens$"),
    "paper_off_12": lambda: _paper_within("12", r": (vLLM|Orca \(Oracle\))$"),
    "paper_off_13": lambda: _paper_within("13", r"^ShareGPT.*: (vLLM|Orca \(\w+\))$"),
    "paper_13_sharegpt": lambda: _paper_of("13", "ShareGPT, 2 req/s: vLLM"),
    "paper_13_alpaca": lambda: _paper_of("13", "Alpaca, 30 req/s: vLLM"),
    "paper_12_sharegpt": lambda: _paper_of("12", "OPT-13B, ShareGPT: vLLM"),
    "paper_12_alpaca": lambda: _paper_of("12", "OPT-13B, Alpaca: vLLM"),
    "paper_14_beams": lambda: _paper_of("14", "beam search, 6 beams: vLLM over Orca (Oracle)"),
    "paper_off_15_sharegpt": lambda: _paper_off("15", "ShareGPT, parallel"),
    "paper_off_15_beams": lambda: _paper_off("15", "beam search"),
    "paper_off_15_alpaca": lambda: _paper_within("15", "Alpaca, parallel"),
    "paper_17": lambda: _paper_of("17", "vLLM over Orca (Oracle)"),
    "alpaca_samples_save_simulated": lambda: _saved("15", "Alpaca, parallel sampling"),
    "samples_save_measured": lambda: _saved("15-measured", "parallel sampling"),
    "unfilled_percent_8": lambda: _unfilled(8),
    "unfilled_percent_16": lambda: _unfilled(16),
    "unfilled_percent_32": lambda: _unfilled(32),
    # And counts
    "one_page_lines": _one_page_lines,
    "tiny_llama_width": lambda: str(read_file()["sizes"]["width"]),
    "tiny_llama_words": lambda: str(len(read_file()["words"])),
    "tiny_llama_kb": lambda: f"{FILE.stat().st_size / 1000:.0f}",
    # /health beside a burst: its 99th percentile, and the worst
    "burst_texts_p99": lambda: _burst("texts", "p99"),
    "burst_texts_max": lambda: _burst("texts", "max"),
    "burst_streams_p99": lambda: _burst("streams", "p99"),
    "burst_streams_max": lambda: _burst("streams", "max"),
    "burst_both_p99": lambda: _burst("streams_and_texts", "p99"),
    "burst_both_max": lambda: _burst("streams_and_texts", "max"),
    "burst_text_s": lambda: f"{_of('server_burst', 'texts', 'text_s'):.1f}",
    "burst_huge_text_s": lambda: f"{_of('server_burst', 'huge_text', 'text_s'):.1f}",
    "busy_thread_share": lambda: _busy(5.0),
    "busy_thread_share_short": lambda: _busy(0.5),
    "busy_thread_load": lambda: f"{load_result('busy_thread')['machine']['load_average'][0]:.0f}",
    "burst_load": lambda: f"{load_result('server_burst')['machine']['load_average'][0]:.0f}",
    # A prompt after a restart
    "kv_dir_tokens": lambda: f"{_of('kv_cache_dir', 'prompt_tokens'):,}",
    "kv_dir_restarted_ms": lambda: f"{_of('kv_cache_dir', 'restarted_ms'):.0f}",
    "kv_dir_restarted_of_warm": lambda: f"{_of('kv_cache_dir', 'restarted_of_warm'):.2f}",
    "kv_dir_cold_of_restarted": lambda: f"{_of('kv_cache_dir', 'cold_of_restarted'):.0f}",
    "kv_dir_start_s": lambda: f"{_of('kv_cache_dir', 'start_s'):.1f}",
    "kv_dir_start_without_s": lambda: f"{_of('kv_cache_dir', 'start_without_s'):.1f}",
    "kv_dir_loaded_of_warm": lambda: f"{_of('kv_cache_dir', 'loaded_of_warm'):.1f}",
    "kv_dir_cold_of_loaded": lambda: f"{_of('kv_cache_dir', 'cold_of_loaded'):.0f}",
}
