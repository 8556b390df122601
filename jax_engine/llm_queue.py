"""The methods of `LLM` that add requests to the shared batch and wait for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np

from jax_engine.engine.batch import UseTqdm, check_all
from jax_engine.engine.default_sampling import default_sampling
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.prompts import PromptInput, as_prompt_list
from jax_engine.engine.request import Request
from jax_engine.engine.request_checks import check_service, refuse_adapters
from jax_engine.engine.shared_batch import SharedBatch
from jax_engine.engine.tokenization_options import tokenized
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams, per_prompt


@dataclass(frozen=True, slots=True)
class Call:
    """The requests of one call; each list has one entry for each prompt."""

    prompts: list[PromptInput]
    params: Sequence[SamplingParams | PoolingParams]
    priorities: list[int]
    timeouts: list[float | None]


class QueueMethods:
    """A part of `LLM`.

    Args:
        engine: Used by this object, and by callers of `LLMEngine.step`.
    """

    def __init__(self, engine: LLMEngine) -> None:
        self.llm_engine = engine
        self._shared = SharedBatch(engine)
        self._enqueued, self._enqueuing = Mailbox(), Lock()

    def get_default_sampling_params(self) -> SamplingParams:
        """Parameters of requests without any; `EngineConfig.generation_config` is their source.

        Raises:
            WeightsError: generation_config.json is unreadable, or one of its values out of range.
        """
        return SamplingParams.from_optional(**self._default_sampling)

    @cached_property
    def _default_sampling(self) -> dict[str, Any]:
        return default_sampling(self.llm_engine.config, self.llm_engine.model_source)

    def enqueue(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: UseTqdm = True,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        mm_processor_kwargs: None = None,
        *,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[str]:
        """Accepts prompts as `generate` does, but does not wait for them.

        They run in the steps of other calls, and of `wait_for_completion`, which returns their
        outputs.

        Args:
            use_tqdm: Whether to show a bar while prompts are checked, or a replacement of `tqdm`.

        Returns:
            The request ids, in the order of the prompts.

        Raises:
            InvalidRequestError: As `generate`; none was accepted.
        """
        call = self._completions(
            prompts,
            sampling_params,
            priority,
            timeout,
            tokenization_kwargs=tokenization_kwargs,
            lora_request=lora_request,
            mm_processor_kwargs=mm_processor_kwargs,
        )
        checked = self._check(call, use_tqdm)
        with self._enqueuing:
            return self._shared.add(checked, call.priorities, call.timeouts, self._enqueued)

    def wait_for_completion(
        self,
        output_type: type[Any] | tuple[type[Any], ...] | None = None,
        *,
        use_tqdm: UseTqdm = True,
    ) -> list[Any]:
        """Runs until all requests of `enqueue` have ended; returns outputs in the order of arrival.

        Each output is returned once, to one caller.

        Args:
            output_type: The type of the outputs: only `RequestOutput`.

        Raises:
            InvalidRequestError: `output_type` is another type.
            KeyboardInterrupt, StepFailedError: As `generate`; the requests were aborted.
        """
        kinds = output_type if isinstance(output_type, tuple) else (output_type,)
        if output_type is not None and RequestOutput not in kinds:
            raise InvalidRequestError(
                f"output_type must be RequestOutput, as all that enqueue gives, got {output_type!r}"
            )
        self.llm_engine.check_process()
        with self._enqueuing:
            mailbox, self._enqueued = self._enqueued, Mailbox()
        return self._shared.wait(mailbox, use_tqdm=use_tqdm)

    def _completions(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int] | None,
        timeout: float | Sequence[float | None] | None,
        *,
        tokenization_kwargs: Mapping[str, Any] | None,
        lora_request: None,
        mm_processor_kwargs: None,
    ) -> Call:
        """The call of `generate` or `enqueue`: one output for each prompt, at its end."""
        refuse_adapters(lora_request, mm_processor_kwargs)
        batch = as_prompt_list(prompts)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params = per_prompt(sampling_params, len(batch))
        return Call(
            tokenized(
                batch,
                self.llm_engine.tokenizer,
                tokenization_kwargs,
                cannot_fit=self._length_of(params),
            ),
            [replace(one, output_kind=RequestOutputKind.FINAL_ONLY) for one in params],
            _one_each("priority", priority if priority is not None else 0, len(batch)),
            _one_each("timeout", timeout, len(batch)),
        )

    def _length_of(
        self, params: SamplingParams | Sequence[SamplingParams] | None
    ) -> Callable[[str], bool] | None:
        """Tells texts that cannot fit; None if there is no tokenizer, or the parameters may cut."""
        length = self.llm_engine.text_length
        each = params if isinstance(params, Sequence) else [params]
        cut = any(getattr(one, "truncate_prompt_tokens", None) is not None for one in each)
        return None if cut or length is None else length.cannot_fit

    def _run(self, call: Call, use_tqdm: UseTqdm) -> list[Any]:
        """Checks and adds all requests, and runs until they have finished."""
        checked = self._check(call, use_tqdm=False)
        mailbox = Mailbox()
        try:
            self._shared.add(checked, call.priorities, call.timeouts, mailbox)
            return self._shared.wait(mailbox, use_tqdm=use_tqdm)
        except BaseException:
            self.llm_engine.abort_all(mailbox)
            raise

    def _check(self, call: Call, use_tqdm: UseTqdm) -> list[Request]:
        self.llm_engine.check_process()
        for priority, timeout in zip(call.priorities, call.timeouts, strict=True):
            check_service(self.llm_engine.config.scheduling_policy, priority, timeout)
        return check_all(self.llm_engine, call.prompts, call.params, use_tqdm=use_tqdm)


def _one_each(name: str, value: Any, num_prompts: int) -> list[Any]:
    """One value for each prompt: the same for all, or the values given."""
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
