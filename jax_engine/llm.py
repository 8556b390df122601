"""`LLM`: prompts in, completions out, in one continuous batch."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import jax

from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig, profile_folder
from jax_engine.engine.calls import (
    Calls,
    UseTqdm,
    build_engines,
    check_all,
    loras_each,
    number_each,
)
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.pooling import ranking
from jax_engine.engine.pooling.scoring import compared, paired, reranker_prompts, whole_pair_scored
from jax_engine.engine.requests.default_sampling import default_sampling
from jax_engine.engine.requests.prompt_embeds import refuse_embeds
from jax_engine.engine.requests.prompts import (
    PromptInput,
    as_prompt_list,
    chat_prompts,
    tokenization_options,
    tokenized,
)
from jax_engine.engine.requests.request import Request, refuse_images
from jax_engine.engine.results import beam_search_output
from jax_engine.engine.stats import Metric
from jax_engine.errors import ConfigError, InvalidRequestError
from jax_engine.lora.request import LoRARequest, one_lora_each
from jax_engine.outputs import (
    BeamSearchOutput,
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    RequestOutput,
    ScoringRequestOutput,
)
from jax_engine.pooling_params import PoolingParams, PoolingTask, default_pooling, with_task
from jax_engine.sampling_params import (
    BeamSearchParams,
    RequestOutputKind,
    SamplingParams,
    one_each,
    per_prompt,
)
from jax_engine.tokenization.chat_content import ContentFormat, Message
from jax_engine.tokenization.chat_template import Tool, load_chat_template

type PoolingInput = PoolingParams | Sequence[PoolingParams] | None
type LoRAInput = LoRARequest | Sequence[LoRARequest | None] | None


class LLM:
    """An engine for offline use, on a thread of its own. Calls of all threads share one batch.

    Args:
        model: A directory in Hugging Face layout, a GGUF file, a hub name, or None for
            SmolLM2-135M-Instruct.
        chat_template: The default of `chat`: Jinja, or the path of a file with it. None: the
            model's own.
        settings: Fields of `EngineConfig`. vLLM's other settings are accepted too: silently if the
            value is its default or makes no difference here, with one warning if it would only
            change speed or logs. A value that would change outputs is refused.

    Raises:
        ConfigError: A setting is out of range or contradicts another.
        ModelNotFoundError, WeightsError: The model cannot be found or read.
        OutOfMemoryError: Not one sequence of max_model_len fits.

    Attributes:
        llm_engine: The engine, or the first of several. Step it yourself only while no call runs.
    """

    def __init__(
        self, model: str | None = None, *, chat_template: str | None = None, **settings: Any
    ) -> None:
        self.chat_template = load_chat_template(chat_template)
        config = EngineConfig.from_settings(model=model, **settings)
        engines = build_engines(config)
        self.llm_engine = engines[0]
        self._calls = Calls(*engines)

    @classmethod
    def from_engine_args(cls, engine_args: EngineArgs) -> Self:
        """An engine with these settings. Raises the same errors as `LLM`."""
        return cls(**vars(engine_args))

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: LoRAInput = None,
        priority: int | Sequence[int] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        mm_processor_kwargs: None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """Completes prompts; returns outputs in the order of the prompts.

        Args:
            prompts: Text, token ids, or dicts as in `jax_engine.inputs`; one or many.
            sampling_params: One for all, or one for each prompt. None: those of
                `get_default_sampling_params`.
            use_tqdm: Whether to show a progress bar, or what replaces `tqdm`.
            lora_request: The adapter that prompts are computed with: one for all, or one, or None,
                for each prompt. Needs enable_lora=True.
            mm_processor_kwargs: Only None; for compatibility with vLLM.
            priority: One for all or one for each prompt, with scheduling_policy="priority"; lower
                runs first.
            tokenization_kwargs: How texts become ids: `add_special_tokens`, `truncation`,
                `max_length`, `truncation_side`, `truncate_prompt_tokens`.
            timeout: Seconds, one for all or one for each prompt. A request that has not finished by
                then returns partial output: finish_reason "abort", stop_reason "timeout".

        Raises:
            InvalidRequestError: A prompt or its params are invalid: the message says which, and no
                request was started.
            StepFailedError: A step failed with one of the requests; all were aborted.
            ConfigError: This thread has settings of JAX that others do not have (as within
                `with jax.disable_jit()`), which the engine's thread could not see.
            KeyboardInterrupt: After Ctrl-C; the requests were aborted, the engine can go on. A
                second Ctrl-C does not wait for that.
        """
        requests = self._completions(
            prompts,
            sampling_params,
            priority,
            timeout,
            tokenization_kwargs=tokenization_kwargs,
            lora_request=lora_request,
            mm_processor_kwargs=mm_processor_kwargs,
        )
        return self._calls.run(requests, use_tqdm)  # type: ignore[return-value]

    def enqueue(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        lora_request: LoRAInput = None,
        priority: int | Sequence[int] | None = None,
        use_tqdm: UseTqdm = True,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        mm_processor_kwargs: None = None,
        *,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[str]:
        """Accepts prompts as `generate` does, but does not wait for them.

        They run from now on; `wait_for_completion` returns their outputs.

        Args:
            use_tqdm: Whether to show a bar while prompts are checked, or a replacement of `tqdm`.

        Returns:
            The request ids, in the order of the prompts.

        Raises:
            InvalidRequestError: As `generate`; none was accepted.
        """
        requests = self._completions(
            prompts,
            sampling_params,
            priority,
            timeout,
            tokenization_kwargs=tokenization_kwargs,
            lora_request=lora_request,
            mm_processor_kwargs=mm_processor_kwargs,
            use_tqdm=use_tqdm,
        )
        return self._calls.enqueue(requests)

    def wait_for_completion(
        self,
        output_type: type[Any] | tuple[type[Any], ...] | None = None,
        *,
        use_tqdm: UseTqdm = True,
    ) -> list[Any]:
        """Waits until all requests of `enqueue` have ended; returns outputs in their order.

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
        return self._calls.wait_enqueued(use_tqdm)

    def score_tokens(
        self, prompts: PromptInput | Sequence[PromptInput], *, use_tqdm: UseTqdm = True
    ) -> list[list[float | None]]:
        """The log-probability of each token of each prompt, given the tokens before it.

        The first token of a prompt gets None.

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
        use_tqdm: UseTqdm = True,
        lora_request: LoRAInput = None,
        *,
        chat_template: str | None = None,
        chat_template_content_format: ContentFormat = "auto",
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Tool] | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> list[RequestOutput]:
        """Answers a conversation, or each of several, through the model's chat template.

        Args:
            messages: Dicts with "role" and "content": text, or a list of
                `{"type": "text", "text": ..}`.
            sampling_params: One for all conversations, or one for each.
            options: As for `generate` (`priority`, `timeout`, ...), with one value for each
                conversation.
            chat_template: Jinja, in place of the model's own, and of an adapter's own, which comes
                before the model's.
            chat_template_content_format: The form of contents for the template: "string", "openai"
                (lists of parts), or "auto", which the template accepts.
            add_generation_prompt: End the prompt with the header of the model's turn.
            continue_final_message: Leave the last message open, so that the model continues it;
                needs add_generation_prompt=False.
            tools: What the model may call: JSON schemas, or functions with type hints and a
                docstring of their arguments.
            chat_template_kwargs: Further options of the template.

        Raises:
            ConfigError: The model has no chat template and none was given.
            InvalidRequestError: Messages or options are invalid; nothing was started.
        """
        prompts = chat_prompts(
            self.llm_engine.text_tokenizer(),
            messages,
            tokenization_kwargs,
            cannot_fit=self._length_of(sampling_params),
            lora_request=lora_request,
            chat_template=self.chat_template if chat_template is None else chat_template,
            chat_template_content_format=chat_template_content_format,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self.generate(
            prompts, sampling_params, use_tqdm=use_tqdm, lora_request=lora_request, **options
        )

    def beam_search(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        params: BeamSearchParams,
        lora_request: LoRAInput = None,
        *,
        use_tqdm: UseTqdm = True,
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best completions of each prompt that a beam search finds.

        All prompts and beams share one batch, also with sampling requests: in `generate` the same
        search is `SamplingParams(use_beam_search=True)`.

        Raises:
            InvalidRequestError: As `generate`; or a prompt is embeddings, which are no text.
        """
        if not isinstance(params, BeamSearchParams):
            raise InvalidRequestError(
                f"params must be BeamSearchParams, got {type(params).__name__}"
            )
        refuse_embeds(prompts)
        outputs = self.generate(
            prompts, params.sampling_params(), use_tqdm=use_tqdm, lora_request=lora_request
        )
        return [beam_search_output(one, self.llm_engine.tokenizer) for one in outputs]

    def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: LoRAInput = None,
        pooling_task: PoolingTask | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """The model's final hidden states of each prompt, or its head's scores.

        Args:
            pooling_params: One for all, or for each prompt. None: `EngineConfig.pooler_config`.
            pooling_task: "embed": pooled into one vector [E]. "token_embed": one vector for each
                token [T, E]. Both are scaled to length 1 with `normalize`. "classify" [C] and
                "token_classify" [T, C]: scores of the model's head, as probabilities unless
                `use_activation` is False. None: the task that the model was made for. A model that
                ranks documents reads them and the query, which comes last, as one prompt: one
                output, "token_embed", has a vector of each, as they are unless `normalize`.
            lora_request: As for `LLM.generate`.
            tokenization_kwargs: As for `LLM.generate`.
            use_tqdm: As for `LLM.generate`.

        Raises:
            InvalidRequestError: As for `LLM.generate`; or the model cannot do this task.
        """
        if ranking.is_ranking(self.llm_engine) and pooling_task in (None, "token_embed"):
            together = ranking.encoded_together(as_prompt_list(prompts))
            prompts = ranking.prompts_of(self.llm_engine, [together], tokenization_kwargs)
        return self._pooled(
            prompts,
            pooling_params,
            use_tqdm=use_tqdm,
            lora_request=lora_request,
            pooling_task=pooling_task,
            tokenization_kwargs=tokenization_kwargs,
        )

    def embed(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput = None,
        **options: Any,
    ) -> list[EmbeddingRequestOutput]:
        """The model's final hidden states of each prompt, pooled into one vector.

        Args:
            options: As for `encode`.

        Raises:
            InvalidRequestError: As for `encode`.
        """
        found = self._pooled(prompts, pooling_params, pooling_task="embed", **options)
        return [_listed(one, EmbeddingOutput, EmbeddingRequestOutput) for one in found]

    def classify(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        *,
        pooling_params: PoolingInput = None,
        **options: Any,
    ) -> list[ClassificationRequestOutput]:
        """The probability of each of the model's classes, for each prompt.

        Args:
            options: As for `encode`.

        Raises:
            InvalidRequestError: As for `encode`; or the model has no classification head.
        """
        found = self._pooled(prompts, pooling_params, pooling_task="classify", **options)
        return [_listed(one, ClassificationOutput, ClassificationRequestOutput) for one in found]

    def score(
        self,
        data_1: PromptInput | Sequence[PromptInput],
        data_2: PromptInput | Sequence[PromptInput],
        /,
        *,
        pooling_params: PoolingParams | None = None,
        chat_template: str | None = None,
        **options: Any,
    ) -> list[ScoringRequestOutput]:
        """Scores how well pairs of texts match.

        A model with a head of one score (a reranker) reads each pair as one prompt and returns a
        probability. One that ranks documents (jina-reranker-v3) reads a query and all of its
        documents as one prompt. Other models compare embeddings by their cosine, in [-1, 1]. With
        `PoolerConfig(task="token_embed")` they compare tokens: the sum over the first text's tokens
        of the cosine with the nearest token of the second text.

        Args:
            data_1: One text for all of `data_2`, or as many texts.
            chat_template: For a reranker: Jinja that makes a prompt of two messages, with the roles
                "query" and "document". None: one text after the other.
            options: As for `encode`.

        Raises:
            InvalidRequestError: As for `encode`; or the numbers of texts do not match; or the head
                gives several scores.
        """
        left, right = paired(as_prompt_list(data_1), as_prompt_list(data_2))
        engine, params = self.llm_engine, pooling_params
        if engine.head is not None and engine.head.config.task == "classify":
            how = tokenization_options(options.pop("tokenization_kwargs", None))
            prompts = reranker_prompts(engine, left, right, chat_template, how)
            return [
                whole_pair_scored(one)
                for one in self._pooled(prompts, params, pooling_task="classify", **options)
            ]
        if chat_template is not None:
            raise InvalidRequestError(
                "chat_template needs a model with a head for one score, which reads both texts as "
                "one prompt; this one compares embeddings"
            )
        if ranking.is_ranking(engine):
            asked = ranking.scored_together(as_prompt_list(data_1), as_prompt_list(data_2))
            prompts = ranking.prompts_of(engine, asked, options.pop("tokenization_kwargs", None))
            found = self._pooled(prompts, params, pooling_task="token_embed", **options)
            return ranking.scores_of(found, asked)
        default = engine.config.pooler_config
        late = default is not None and default.task == "token_embed"
        task: PoolingTask = "token_embed" if late else "embed"
        given = options.pop("lora_request", None)
        if isinstance(given, list | tuple):  # one for each pair
            given = 2 * one_lora_each(given, len(left))
        texts = [*left, *right]
        outputs = self._pooled(texts, params, pooling_task=task, lora_request=given, **options)
        pairs = zip(outputs[: len(left)], outputs[len(left) :], strict=True)
        return [compared(a, b) for a, b in pairs]

    def get_default_sampling_params(self) -> SamplingParams:
        """Parameters of requests without any; `EngineConfig.generation_config` is their source.

        Raises:
            WeightsError: generation_config.json is unreadable, or one of its values out of range.
        """
        return SamplingParams.from_optional(**self._default_sampling)

    @cached_property
    def _default_sampling(self) -> dict[str, Any]:
        return default_sampling(self.llm_engine.config, self.llm_engine.model_source)

    def get_tokenizer(self) -> Any:
        """The model's tokenizer as Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: The engine was built without a tokenizer.
        """
        return self.llm_engine.get_tokenizer()

    def get_metrics(self) -> list[Metric]:
        """Gauges, counters and histograms with vLLM's names, since the engine was built.

        Queues, KV usage and preemptions are current; tokens, prefix cache hits, finish reasons and
        latencies count requests that have ended. The label "engine" is the number of one of
        several engines (`data_parallel_size`).
        """
        each = self._calls.of_each(LLMEngine.get_metrics)
        for number, metrics in enumerate(each):
            for one in metrics:
                one.labels = one.labels | {"engine": str(number)}
        return [one for metrics in each for one in metrics]

    def reset_prefix_cache(
        self, reset_running_requests: bool = False, reset_connector: bool = False
    ) -> bool:
        """Forgets all cached blocks; returns False and does nothing while requests are running.

        Args:
            reset_running_requests: Also forget blocks of running requests, and compute them again.
            reset_connector: Also remove this model's files in `kv_cache_dir`. Else prompts are
                still found there.
        """
        return self._calls.reset_prefix_caches(
            lambda engine: engine.reset_prefix_cache(reset_running_requests, reset_connector)
        )

    def start_profile(self, profile_prefix: str | None = None) -> None:
        """Records what the device and the host do, until `stop_profile`.

        The trace is for TensorBoard or https://ui.perfetto.dev. It is written to the folder of
        `EngineConfig.profiler_config`, else of the environment variable VLLM_TORCH_PROFILER_DIR,
        else to ./jax_profile; if `profile_prefix` is given, to that folder within it.

        Raises:
            ConfigError: A profile is running already, or the model is in another process.
        """
        backend = self.llm_engine.config.distributed_executor_backend
        if backend in ("mp", "ray"):
            raise ConfigError(
                f"start_profile needs distributed_executor_backend='uni', got {backend!r}: the "
                "profile of this process would not show the model's steps"
            )
        folder = profile_folder(self.llm_engine.config.profiler_config)
        if profile_prefix is not None:
            folder = os.path.join(folder, str(profile_prefix))
        try:
            jax.profiler.start_trace(folder)
        except RuntimeError as error:
            raise ConfigError(f"start_profile: {error}") from error

    def stop_profile(self) -> None:
        """Writes the profile.

        Raises:
            ConfigError: No profile is running.
        """
        try:
            jax.profiler.stop_trace()
        except RuntimeError as error:
            raise ConfigError(f"stop_profile: {error}") from error

    def _completions(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        priority: int | Sequence[int] | None,
        timeout: float | Sequence[float | None] | None,
        *,
        tokenization_kwargs: Mapping[str, Any] | None,
        lora_request: LoRAInput,
        mm_processor_kwargs: None,
        use_tqdm: UseTqdm = False,
    ) -> list[Request]:
        """The requests of `generate` or `enqueue`: one output for each prompt, at its end."""
        refuse_images(mm_processor_kwargs)
        batch = as_prompt_list(prompts)
        if sampling_params is None:
            sampling_params = self.get_default_sampling_params()
        params = per_prompt(sampling_params, len(batch))
        return check_all(
            self.llm_engine,
            tokenized(
                batch,
                self.llm_engine.tokenizer,
                tokenization_kwargs,
                cannot_fit=self._length_of(params),
            ),
            [replace(one, output_kind=RequestOutputKind.FINAL_ONLY) for one in params],
            number_each("priority", priority if priority is not None else 0, len(batch)),
            number_each("timeout", timeout, len(batch)),
            loras_each(self.llm_engine, lora_request, len(batch)),
            use_tqdm=use_tqdm,
        )

    def _length_of(
        self, params: SamplingParams | Sequence[SamplingParams] | None
    ) -> Callable[[str], bool] | None:
        """Tells texts that cannot fit; None if there is no tokenizer, or the parameters may cut."""
        length = self.llm_engine.text_length
        each = params if isinstance(params, Sequence) else [params]
        cut = any(getattr(one, "truncate_prompt_tokens", None) is not None for one in each)
        return None if cut or length is None else length.cannot_fit

    def _pooled(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: LoRAInput = None,
        pooling_task: PoolingTask | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """`encode` for the other methods, even if a subclass overrides `encode`."""
        batch = as_prompt_list(prompts)
        default = default_pooling(self.llm_engine.config.pooler_config, pooling_task)
        given = default if pooling_params is None else pooling_params
        params = one_each("pooling_params", given, PoolingParams, len(batch))
        tasked = [with_task(one, pooling_task) for one in params]
        engine, count = self.llm_engine, len(batch)
        fits, keeps = self._length_of(None), engine.model_config.spec.is_encoder
        batch = tokenized(
            batch, engine.tokenizer, tokenization_kwargs, cannot_fit=fits, keeps_around=keeps
        )
        loras = loras_each(engine, lora_request, count)
        requests = check_all(engine, batch, tasked, [0] * count, [None] * count, loras)
        return self._calls.run(requests, use_tqdm)  # type: ignore[return-value]


def _listed[Part, Whole](
    one: PoolingRequestOutput,
    part: Callable[[list[float]], Part],
    whole: Callable[[str, Part, list[int], bool], Whole],
) -> Whole:
    """An output with its numbers as a list."""
    numbers = part(one.outputs.data.tolist())
    return whole(one.request_id, numbers, one.prompt_token_ids, one.finished)
