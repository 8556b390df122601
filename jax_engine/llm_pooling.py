"""The methods of `LLM` that give hidden states instead of text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jax_engine.checks import shown
from jax_engine.engine.batch import UseTqdm, refuse_adapters
from jax_engine.engine.prompts import PromptInput, as_prompt_list
from jax_engine.engine.tokenization_options import tokenized
from jax_engine.errors import InvalidRequestError
from jax_engine.llm_queue import Call, QueueMethods
from jax_engine.outputs import (
    EmbeddingOutput,
    EmbeddingRequestOutput,
    PoolingRequestOutput,
    ScoringOutput,
    ScoringRequestOutput,
)
from jax_engine.pooling_params import PoolingParams, PoolingTask
from jax_engine.sampling_params import one_each

type PoolingInput = PoolingParams | Sequence[PoolingParams] | None


class PoolingMethods(QueueMethods):
    """A part of `LLM`: `encode`, and what is made of it."""

    def encode(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        pooling_params: PoolingInput = None,
        *,
        use_tqdm: UseTqdm = True,
        lora_request: None = None,
        pooling_task: PoolingTask = "embed",
        tokenization_kwargs: Mapping[str, Any] | None = None,
    ) -> list[PoolingRequestOutput]:
        """The model's final hidden states of each prompt.

        Args:
            pooling_params: One for all, or one for each prompt.
            pooling_task: "embed": pooled into one vector [E]. "token_embed": of each token [T, E],
                as they are or, with `normalize`, scaled to length 1.
            lora_request, tokenization_kwargs, use_tqdm: As for `LLM.generate`.

        Raises:
            InvalidRequestError: As for `LLM.generate`; or there is no such task.
        """
        refuse_adapters(lora_request)
        batch = as_prompt_list(prompts)
        given = PoolingParams() if pooling_params is None else pooling_params
        params = one_each("pooling_params", given, PoolingParams, len(batch))
        tasked = [_with_task(one, pooling_task) for one in params]
        batch = tokenized(batch, self.llm_engine.tokenizer, tokenization_kwargs)
        count = len(batch)
        return self._run(Call(batch, tasked, [0] * count, [None] * count), use_tqdm)

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
            for one in self.encode(prompts, pooling_params, **options)
        ]

    def score(
        self,
        data_1: PromptInput | Sequence[PromptInput],
        data_2: PromptInput | Sequence[PromptInput],
        /,
        *,
        pooling_params: PoolingParams | None = None,
        **options: Any,
    ) -> list[ScoringRequestOutput]:
        """How similar texts are: the cosine of their embeddings, in [-1, 1].

        Args:
            data_1: One text for all of `data_2`, or as many.
            options: As for `encode`.

        Raises:
            InvalidRequestError: As for `encode`; or there are as many of neither kind.
        """
        left, right = as_prompt_list(data_1), as_prompt_list(data_2)
        if len(left) not in (1, len(right)):
            raise InvalidRequestError(
                f"data_1 must hold 1 text or as many as data_2 ({len(right)}), got {len(left)}"
            )
        params = PoolingParams() if pooling_params is None else pooling_params
        outputs = self.embed([*left, *right], params, **options)
        firsts, seconds = outputs[: len(left)], outputs[len(left) :]
        if len(left) == 1:
            firsts = firsts * len(right)
        return [_scored(a, b) for a, b in zip(firsts, seconds, strict=True)]

    def classify(self, prompts: Any, **options: Any) -> list[Any]:
        """
        Raises:
            InvalidRequestError: Always: no model here has a head for classes.
        """
        raise InvalidRequestError(
            "classify needs a model with a classification head, got "
            f"{self.llm_engine.model_config.architecture}, which generates text: use embed, or "
            "generate with SamplingParams(structured_outputs=StructuredOutputsParams(choice=...))"
        )


def _with_task(params: PoolingParams, task: PoolingTask) -> PoolingParams:
    if params.task not in (None, task):
        raise InvalidRequestError(
            f"pooling_params.task must be None or {shown(task)} here, got {params.task!r}"
        )
    return replace(params, task=task)


def _scored(a: EmbeddingRequestOutput, b: EmbeddingRequestOutput) -> ScoringRequestOutput:
    first, second = np.array(a.outputs.embedding), np.array(b.outputs.embedding)
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return ScoringRequestOutput(
        f"{a.request_id}-{b.request_id}",
        ScoringOutput(float(first @ second) / max(length, 1e-12)),
        a.prompt_token_ids + b.prompt_token_ids,
        a.finished and b.finished,
    )
