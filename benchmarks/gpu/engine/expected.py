"""What was expected of an H100 before anything was measured; docs/gpu.md has the arithmetic.

Ratios as the results name them: percent of a bound, or times something.
"""

AIMS = {
    ("decode", "percent_of_bound"): "at least 80",
    ("prefill", "percent_of_matrix_rate"): "at least 60",
}
EXPECTED: dict[tuple[str, str, str], float] = {
    ("Llama-3.2-1B", "decode", "percent_of_bound"): 60,
    ("Llama-3.2-1B", "prefill", "percent_of_matrix_rate"): 55,
    ("Llama-3.2-1B", "throughput", "percent_of_bound"): 25,
    ("Llama-3.2-1B", "first token", "p50_over_bound"): 3.8,
    ("Llama-3.2-1B", "transformers", "ours_over_theirs"): 3,
    ("Llama-3.1-8B", "decode", "percent_of_bound"): 77,
    ("Llama-3.1-8B", "prefill", "percent_of_matrix_rate"): 75,
    ("Llama-3.1-8B", "throughput", "percent_of_bound"): 33,
    ("Llama-3.1-8B", "first token", "p50_over_bound"): 1.8,
    ("Llama-3.1-8B", "transformers", "ours_over_theirs"): 3,
}
