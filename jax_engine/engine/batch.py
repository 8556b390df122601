"""A batch of prompts: all are checked before the first one starts; a bar shows the progress."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from tqdm import tqdm

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.request import Request
from jax_engine.engine.request_checks import check_service
from jax_engine.errors import InvalidRequestError
from jax_engine.lora.request import LoRARequest, one_lora_each
from jax_engine.outputs import AnyRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams

type Progress = Callable[[AnyRequestOutput], None]
type UseTqdm = bool | Callable[..., Any]  # whether to show a bar, or a replacement of tqdm


def check_all(
    engine: LLMEngine,
    prompts: Sequence[PromptInput],
    params: Sequence[SamplingParams | PoolingParams],
    priorities: Sequence[int],
    timeouts: Sequence[float | None],
    loras: Sequence[LoRARequest | None] | None = None,
    *,
    use_tqdm: UseTqdm = False,
) -> list[Request]:
    """Checks every prompt; returns the requests, which have no names yet.

    Raises:
        InvalidRequestError: Some are invalid; the message says which, and why.
    """
    engine.check_process()
    for priority, timeout in zip(priorities, timeouts, strict=True):
        check_service(engine.config.scheduling_policy, priority, timeout)
    checked: list[Request] = []
    problems: list[InvalidRequestError] = []
    where: list[int] = []
    each = [None] * len(prompts) if loras is None else loras
    asked = zip(prompts, params, each, strict=True)
    bar = _maker(use_tqdm)(asked, total=len(prompts), desc="Adding requests")
    for i, (prompt, one, lora) in enumerate(bar):
        try:
            checked.append(engine.check_request(prompt, one, lora=lora))
        except InvalidRequestError as error:
            problems.append(error)
            where.append(i)
    if not problems:
        for request, priority, timeout in zip(checked, priorities, timeouts, strict=True):
            request.serve_as("new", priority=priority, timeout=timeout)
        return checked
    texts = [str(error).removeprefix("request 'new': ") for error in problems[:5]]
    lines = [f"prompts[{i}]: {text}" for i, text in zip(where, texts, strict=False)]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    note = f"; none of the {len(prompts)} prompts was started" if len(prompts) > 1 else ""
    raise type(problems[0])("; ".join(lines) + note)


def loras_each(engine: LLMEngine, lora_request: Any, num_prompts: int) -> list[LoRARequest | None]:
    """The adapter of each prompt; arrays become adapters here, once for all prompts.

    Raises:
        InvalidRequestError: They are no adapters, or not as many as there are prompts.
    """
    found: list[LoRARequest | None] = []
    made: dict[int, LoRARequest] = {}
    for one in one_lora_each(lora_request, num_prompts):
        if one is not None and one.lora_tensors is not None:
            if id(one) not in made:
                adapter = engine.read_lora(one)
                made[id(one)] = replace(one, lora_tensors=None, peft_config=None, adapter=adapter)
            one = made[id(one)]
        found.append(one)
    return found


def number_each(name: str, value: Any, num_prompts: int) -> list[Any]:
    """One number for each prompt: the same for all, or those given.

    Raises:
        InvalidRequestError: So many prompts are not so many numbers.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return [value] * num_prompts
    values = list(value)
    if len(values) != num_prompts:
        raise InvalidRequestError(
            f"{name} must have one number for each of the {num_prompts} prompts, got {len(values)}"
        )
    return values


@contextmanager
def progress_bar(total: int, use_tqdm: UseTqdm) -> Iterator[Progress]:
    """A bar over requests, with the estimated speeds that vLLM shows."""
    with _maker(use_tqdm)(total=total, desc="Processed prompts", dynamic_ncols=True) as bar:
        tokens = {"input": 0, "output": 0}
        started = time.monotonic()

        def advance(output: AnyRequestOutput) -> None:
            tokens["input"] += len(output.prompt_token_ids)
            if isinstance(output, RequestOutput):
                tokens["output"] += sum(len(one.token_ids) for one in output.outputs)
            elapsed = max(time.monotonic() - started, 1e-9)
            speeds = (f"{name}: {count / elapsed:.2f} toks/s" for name, count in tokens.items())
            bar.postfix = "est. speed " + ", ".join(speeds)
            bar.update(1)

        yield advance


def _maker(use_tqdm: UseTqdm) -> Callable[..., Any]:
    return use_tqdm if callable(use_tqdm) else partial(tqdm, disable=not use_tqdm)
