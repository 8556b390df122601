"""Names of the modes of scheduling, preemption and CUDA graphs, for settings and their readers."""

from typing import Literal

Scheduling = Literal["unified", "sosp", "sosp-mixed"]
Policy = Literal["fcfs", "priority"]
PreemptionMode = Literal["recompute", "swap"]
PreemptionRule = Literal["recompute", "swap", "auto"]  # "auto": the cheaper one for each group
# What becomes a CUDA graph, in vLLM's words: nothing, each layer ("PIECEWISE"), the whole step. The
# last two name a mode for steps that only decode, and one for steps with prompts.
CudagraphMode = Literal["NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"]
