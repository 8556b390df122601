"""`LLM`: prompts in, completions out, all of them in one continuous batch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

from jax_engine.beam_search_params import BeamSearchParams
from jax_engine.config import EngineConfig
from jax_engine.engine.batch import check_all
from jax_engine.engine.beam_search import beam_search_output
from jax_engine.engine.conversations import chat_prompts
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.mailbox import Mailbox
from jax_engine.engine.prompts import PromptInput, as_prompt_list
from jax_engine.engine.request_checks import CheckedRequest, check_service
from jax_engine.engine.shared_batch import SharedBatch
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import BeamSearchOutput, EmbeddingRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams, per_prompt
from jax_engine.tokenization.chat import Tool
from jax_engine.tokenization.chat_content import ContentFormat, Message
from jax_engine.tokenization.tokenizer import Tokenizer


class LLM:
    """An engine for offline use, from any number of threads: their requests share one batch.

    Args:
        model: A directory in Hugging Face layout, a GGUF file, a hub name, or None for
            SmolLM2-135M-Instruct.
        settings: All fields of `EngineConfig`, by name.

    Raises:
        ConfigError: A setting is out of range or contradicts another one.
        ModelNotFoundError, WeightsError: The model cannot be found or read.
        OutOfMemoryError: Not one sequence of max_model_len fits.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.llm_engine = LLMEngine.from_config(EngineConfig.from_settings(model=model, **settings))
        self._shared = SharedBatch(self.llm_engine)
        self._enqueued, self._enqueuing = Mailbox(), Lock()

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """Completes prompts; outputs come in the order of the prompts.

        Args:
            prompts: Text, token ids, `{"prompt": ..}` or `{"prompt_token_ids": ..}`; one or many.
            sampling_params: One for all, or one for each prompt.
            priority: One for each prompt, with scheduling_policy="priority"; lower runs first.
            timeout: Seconds, one for all or one for each prompt. What has not finished by then
                comes back as far as it got, with finish_reason "abort" and stop_reason "timeout".

        Raises:
            InvalidRequestError: Something is wrong with a prompt or its params: the message says
                which, and none of them was started.
            KeyboardInterrupt: After Ctrl-C; the requests were aborted, the engine can go on.
        """
        requests = _completions(prompts, sampling_params, priority, timeout)
        return self._run_batch(*requests, use_tqdm=use_tqdm)

    def enqueue(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[str]:
        """Accepts prompts as `generate` does, and does not wait for them.

        They run along with the steps of other calls, and of `wait_for_completion`, which returns
        their outputs.

        Args:
            use_tqdm: Show a bar while prompts are checked.

        Returns:
            The request ids, in the order of the prompts.

        Raises:
            InvalidRequestError: As `generate`; none was accepted.
        """
        batch, params, priorities, timeouts = _completions(
            prompts, sampling_params, priority, timeout
        )
        checked = self._check(batch, params, priorities, timeouts, use_tqdm=use_tqdm)
        with self._enqueuing:
            return self._shared.add(checked, priorities, timeouts, self._enqueued)

    def wait_for_completion(
        self,
        output_type: type[Any] | tuple[type[Any], ...] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[Any]:
        """Runs until all requests of `enqueue` have ended; their outputs, in the order of arrival.

        Each output is returned once, to one caller.

        Args:
            output_type: What the caller expects: `RequestOutput`, which all of them are.

        Raises:
            InvalidRequestError: There is nothing of another type to wait for.
            KeyboardInterrupt, StepFailedError: As `generate`; the requests were aborted.
        """
        if output_type is not None and not issubclass(RequestOutput, output_type):
            raise InvalidRequestError(
                f"output_type must be RequestOutput, as all that enqueue gives, got {output_type!r}"
            )
        self.llm_engine.check_process()
        with self._enqueuing:
            mailbox, self._enqueued = self._enqueued, Mailbox()
        return self._shared.wait(mailbox, use_tqdm=use_tqdm)

    def embed(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingParams | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[EmbeddingRequestOutput]:
        """The model's final hidden states of each prompt, pooled into one vector.

        Raises:
            InvalidRequestError: As for `generate`.
        """
        batch = as_prompt_list(prompts)
        count = len(batch)
        params = [pooling_params or PoolingParams()] * count
        return self._run_batch(batch, params, [0] * count, [None] * count, use_tqdm=use_tqdm)

    def score_tokens(
        self, prompts: PromptInput | Sequence[PromptInput], *, use_tqdm: bool = True
    ) -> list[list[float | None]]:
        """The log-probability of each token of each prompt, given the tokens before it.

        The first token of a prompt has None.

        Raises:
            InvalidRequestError: As for `generate`.
        """
        params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        return [
            [
                None if entry is None else entry[token].logprob
                for token, entry in zip(
                    output.prompt_token_ids, output.prompt_logprobs or (), strict=True
                )
            ]
            for output in self.generate(prompts, params, use_tqdm=use_tqdm)
        ]

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        use_tqdm: bool = True,
        *,
        chat_template: str | None = None,
        chat_template_content_format: ContentFormat = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Tool] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        priority: Sequence[int] | None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """The model's answer to a conversation, or to each of many, by its chat template.

        Args:
            messages: Dicts with "role" and "content": text, or a list of
                `{"type": "text", "text": ..}`.
            sampling_params: As for `generate`; so are `priority` and `timeout`, one for each
                conversation.
            chat_template: Jinja, in place of the model's own.
            chat_template_content_format: How contents reach the template: "string", "openai" (lists
                of parts), or "auto", as it takes them.
            add_generation_prompt: End the prompt with what begins the model's turn.
            continue_final_message: End it in the middle of the last message, which the model goes
                on writing; needs add_generation_prompt=False.
            tools: What the model may call: JSON schemas, or functions with type hints and a
                docstring of their arguments.
            chat_template_kwargs: Options of the template's own.

        Raises:
            ConfigError: The model has no chat template and none was given.
            InvalidRequestError: Messages or options are not acceptable; nothing was started.
        """
        prompts = chat_prompts(
            self.get_tokenizer(),
            messages,
            chat_template_kwargs,
            chat_template=chat_template,
            content_format=chat_template_content_format,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
        )
        return self.generate(
            prompts, sampling_params, use_tqdm=use_tqdm, priority=priority, timeout=timeout
        )

    def beam_search(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        params: BeamSearchParams,
        *,
        use_tqdm: bool = True,
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best completions of each prompt that a beam search finds.

        All prompts and beams share one batch; so they do with sampling requests in `generate`, to
        which it is `SamplingParams(use_beam_search=True)`.

        Raises:
            InvalidRequestError: As `generate`.
        """
        if not isinstance(params, BeamSearchParams):
            raise InvalidRequestError(
                f"params must be BeamSearchParams, got {type(params).__name__}"
            )
        outputs = self.generate(prompts, params.sampling_params(), use_tqdm=use_tqdm)
        return [beam_search_output(one, self.llm_engine.tokenizer) for one in outputs]

    def get_tokenizer(self) -> Tokenizer:
        return self.llm_engine.get_tokenizer()

    def _run_batch(
        self,
        batch: list[PromptInput],
        params: Sequence[SamplingParams | PoolingParams],
        priorities: list[int],
        timeouts: list[float | None],
        *,
        use_tqdm: bool,
    ) -> list[Any]:
        """Checks and adds all requests, and runs until they have finished."""
        checked = self._check(batch, params, priorities, timeouts, use_tqdm=False)
        mailbox = Mailbox()
        try:
            self._shared.add(checked, priorities, timeouts, mailbox)
            return self._shared.wait(mailbox, use_tqdm=use_tqdm)
        except BaseException:
            self.llm_engine.abort_all(mailbox)
            raise

    def _check(
        self,
        batch: list[PromptInput],
        params: Sequence[SamplingParams | PoolingParams],
        priorities: list[int],
        timeouts: list[float | None],
        *,
        use_tqdm: bool,
    ) -> list[CheckedRequest]:
        self.llm_engine.check_process()
        for priority, timeout in zip(priorities, timeouts, strict=True):
            check_service(self.llm_engine.config.scheduling_policy, priority, timeout)
        return check_all(self.llm_engine, batch, params, use_tqdm=use_tqdm)


def _completions(
    prompts: PromptInput | Sequence[PromptInput],
    sampling_params: SamplingParams | Sequence[SamplingParams] | None,
    priority: Sequence[int] | None,
    timeout: float | Sequence[float | None] | None,
) -> tuple[list[PromptInput], list[SamplingParams], list[int], list[float | None]]:
    """Prompts, and for each its params, priority and timeout; one output each, at its end."""
    batch = as_prompt_list(prompts)
    params = per_prompt(sampling_params, len(batch))
    return (
        batch,
        [replace(one, output_kind=RequestOutputKind.FINAL_ONLY) for one in params],
        _one_each("priority", priority if priority is not None else 0, len(batch)),
        _one_each("timeout", timeout, len(batch)),
    )


def _one_each(name: str, value: Any, num_prompts: int) -> list[Any]:
    """The same value for each prompt, or the values given, one each."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value] * num_prompts
    values = list(value)
    if len(values) != num_prompts:
        raise InvalidRequestError(
            f"{name} must have one number for each of the {num_prompts} prompts, got {len(values)}"
        )
    return values
