"""Names of the modes of scheduling and preemption, for settings and for the scheduler."""

from typing import Literal

Scheduling = Literal["unified", "sosp", "sosp-mixed"]
Policy = Literal["fcfs", "priority"]
PreemptionMode = Literal["recompute", "swap"]
PreemptionRule = Literal["recompute", "swap", "auto"]  # "auto": the cheaper one for each group
