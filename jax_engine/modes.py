"""Names of the modes of loading, scheduling, preemption and CUDA graphs, for all who read them."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

Scheduling = Literal["unified", "sosp", "sosp-mixed"]
Policy = Literal["fcfs", "priority"]
PreemptionMode = Literal["recompute", "swap"]
PreemptionRule = Literal["recompute", "swap", "auto"]  # "auto": the cheaper one for each group
# What becomes a CUDA graph, in vLLM's words: nothing, each layer ("PIECEWISE"), the whole step. The
# last two name a mode for steps that only decode, and one for steps with prompts.
CudagraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
LoadFormat = Literal["auto", "safetensors", "sharded_state", "gguf", "dummy"]
# Values of `quantization` that are no method of a checkpoint, but what is done when one is loaded.
DEQUANTIZED, W8A8 = "dequantized", "w8a8"
# Edits of config.json: fields to replace, or a function of all of them
HfOverrides = Mapping[str, Any] | Callable[[dict[str, Any]], Any]
