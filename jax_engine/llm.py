"""`LLM`: prompts in, completions out, in one continuous batch."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from jax_engine.beam_search_params import BeamSearchParams
from jax_engine.config import EngineConfig
from jax_engine.engine.batch import UseTqdm
from jax_engine.engine.beams import beam_search_output
from jax_engine.engine.conversations import chat_prompts
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.request_checks import refuse_adapters
from jax_engine.engine_args import EngineArgs
from jax_engine.errors import InvalidRequestError
from jax_engine.llm_pooling import PoolingMethods
from jax_engine.llm_service import ServiceMethods
from jax_engine.outputs import BeamSearchOutput, RequestOutput
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.chat import Tool, load_chat_template
from jax_engine.tokenization.chat_content import ContentFormat, Message


class LLM(PoolingMethods, ServiceMethods):
    """An engine for offline use. Requests of all threads share one batch.

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
    """

    def __init__(
        self, model: str | None = None, *, chat_template: str | None = None, **settings: Any
    ) -> None:
        self.chat_template = load_chat_template(chat_template)
        config = EngineConfig.from_settings(model=model, **settings)
        super().__init__(LLMEngine.from_config(config))

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
        lora_request: None = None,
        priority: int | Sequence[int] | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
        mm_processor_kwargs: None = None,
        timeout: float | Sequence[float | None] | None = None,
    ) -> list[RequestOutput]:
        """Completes prompts; returns outputs in the order of the prompts.

        Args:
            prompts: Text, token ids, `{"prompt": ..}` or `{"prompt_token_ids": ..}`; one or many.
            sampling_params: One for all, or one for each prompt. None: those of
                `get_default_sampling_params`.
            use_tqdm: Whether to show a progress bar, or a replacement of `tqdm`, such as
                `functools.partial(tqdm, leave=False)`.
            lora_request: Only None; for compatibility with vLLM.
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
            KeyboardInterrupt: After Ctrl-C; the requests were aborted, the engine can go on.
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
        return self._run(call, use_tqdm)

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
        lora_request: None = None,
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
            chat_template: Jinja, in place of the model's own.
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
        refuse_adapters(lora_request)
        prompts = chat_prompts(
            self.llm_engine.text_tokenizer(),
            messages,
            tokenization_kwargs,
            cannot_fit=self._length_of(sampling_params),
            chat_template=self.chat_template if chat_template is None else chat_template,
            chat_template_content_format=chat_template_content_format,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            chat_template_kwargs=chat_template_kwargs,
        )
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm, **options)

    def beam_search(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        params: BeamSearchParams,
        lora_request: None = None,
        *,
        use_tqdm: UseTqdm = True,
    ) -> list[BeamSearchOutput]:
        """The `beam_width` best completions of each prompt that a beam search finds.

        All prompts and beams share one batch, also with sampling requests: in `generate` the same
        search is `SamplingParams(use_beam_search=True)`.

        Raises:
            InvalidRequestError: As `generate`.
        """
        if not isinstance(params, BeamSearchParams):
            raise InvalidRequestError(
                f"params must be BeamSearchParams, got {type(params).__name__}"
            )
        refuse_adapters(lora_request)
        outputs = self.generate(prompts, params.sampling_params(), use_tqdm=use_tqdm)
        return [beam_search_output(one, self.llm_engine.tokenizer) for one in outputs]
