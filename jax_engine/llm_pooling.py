"""The methods of `LLM` that return hidden states or scores instead of text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jax_engine.checks import shown
from jax_engine.engine.batch import UseTqdm
from jax_engine.engine.prompts import PromptInput, as_prompt_list
from jax_engine.engine.request_checks import refuse_adapters
from jax_engine.engine.scoring import (
    compared,
    paired,
    reranker_prompts,
    whole_pair_scored,
)
from jax_engine.engine.tokenization_options import tokenization_options, tokenized
from jax_engine.errors import InvalidRequestError
from jax_engine.llm_queue import Call, QueueMethods
from jax_engine.outputs import (
    ClassificationOutput,
    ClassificationRequestOutput,
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringRequestOutput,
)
from jax_engine.pooling_params import PoolingParams, PoolingTask, default_pooling
from jax_engine.sampling_params import one_each

type PoolingInput = PoolingParams | Sequence[PoolingParams] | None


class PoolingMethods(QueueMethods):
    """A part of `LLM`: `encode` and the methods built on it."""

    def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        pooling_task: PoolingTask | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """The model's final hidden states of each prompt, or its head's scores.

        Args:
            pooling_params: One for all, or one for each prompt. None:
                `EngineConfig.pooler_config`.
            pooling_task: "embed": pooled into one vector [E]. "token_embed": one vector for each
                token [T, E]. Both are scaled to length 1 with `normalize`. "classify" [C] and
                "token_classify" [T, C]: scores of the model's head, as probabilities unless
                `use_activation` is False. None: the task that the model was made for.
            lora_request: As for `LLM.generate`.
            tokenization_kwargs: As for `LLM.generate`.
            use_tqdm: As for `LLM.generate`.

        Raises:
            InvalidRequestError: As for `LLM.generate`; or the model cannot do this task.
        """
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
        return [
            EmbeddingRequestOutput(
                one.request_id,
                EmbeddingOutput(one.outputs.data.tolist()),
                one.prompt_token_ids,
                one.finished,
            )
            for one in self._pooled(prompts, pooling_params, pooling_task="embed", **options)
        ]

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
        return [
            ClassificationRequestOutput(
                one.request_id,
                ClassificationOutput(one.outputs.data.tolist()),
                one.prompt_token_ids,
                one.finished,
            )
            for one in self._pooled(prompts, pooling_params, pooling_task="classify", **options)
        ]

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
        probability. Other models compare embeddings by their cosine, in [-1, 1]. With
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
        default = engine.config.pooler_config
        late = default is not None and default.task == "token_embed"
        task: PoolingTask = "token_embed" if late else "embed"
        outputs = self._pooled([*left, *right], params, pooling_task=task, **options)
        pairs = zip(outputs[: len(left)], outputs[len(left) :], strict=True)
        return [compared(a, b) for a, b in pairs]

    def _pooled(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        pooling_task: PoolingTask | None = None,
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """`encode` for the other methods, even if a subclass overrides `encode`."""
        refuse_adapters(lora_request)
        batch = as_prompt_list(prompts)
        default = default_pooling(self.llm_engine.config.pooler_config, pooling_task)
        given = default if pooling_params is None else pooling_params
        params = one_each("pooling_params", given, PoolingParams, len(batch))
        tasked = [_with_task(one, pooling_task) for one in params]
        batch = tokenized(
            batch,
            self.llm_engine.tokenizer,
            tokenization_kwargs,
            cannot_fit=self._length_of(None),
        )
        count = len(batch)
        return self._run(Call(batch, tasked, [0] * count, [None] * count), use_tqdm)


def _with_task(params: PoolingParams, task: PoolingTask | None) -> PoolingParams:
    if task is None:
        return params
    if params.task not in (None, task):
        raise InvalidRequestError(
            f"pooling_params.task must be None or {shown(task)} here, got {params.task!r}"
        )
    return replace(params, task=task)
