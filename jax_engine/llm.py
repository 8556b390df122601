"""`LLM`: prompts in, completions out, all of them in one continuous batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tqdm import tqdm

from jax_engine.config import EngineConfig
from jax_engine.engine.interrupt import deferred_interrupt
from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.prompts import Prompt, PromptInput, as_prompt_list
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import AnyRequestOutput, EmbeddingRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import RequestOutputKind, SamplingParams, per_prompt
from jax_engine.tokenization.tokenizer import Tokenizer

Message = Mapping[str, Any]


class LLM:
    """An engine for offline use.

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
        self._num_requests = 0

    def generate(
        self,
        prompts: PromptInput | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        priority: Sequence[int] | None = None,
    ) -> list[RequestOutput]:
        """Completes prompts; outputs come in the order of the prompts.

        Args:
            prompts: Text, token ids, `{"prompt": ..}` or `{"prompt_token_ids": ..}`; one or many.
            sampling_params: One for all, or one for each prompt.
            priority: One for each prompt, with scheduling_policy="priority"; lower runs first.

        Raises:
            InvalidRequestError: Something is wrong with a prompt or its params: the message says
                which, and none of them was started.
            KeyboardInterrupt: After Ctrl-C; the requests were aborted, the engine can go on.
        """
        batch = as_prompt_list(prompts)
        params = per_prompt(sampling_params, len(batch))
        priorities = list(priority) if priority is not None else [0] * len(batch)
        if len(priorities) != len(batch):
            raise InvalidRequestError(
                f"priority must have one number for each of the {len(batch)} prompts, "
                f"got {len(priorities)}"
            )
        params = [replace(one, output_kind=RequestOutputKind.FINAL_ONLY) for one in params]
        return self._run_all(batch, params, priorities, use_tqdm=use_tqdm)

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
        params = [pooling_params or PoolingParams()] * len(batch)
        return self._run_all(batch, params, [0] * len(batch), use_tqdm=use_tqdm)

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
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """The model's answer to a conversation, or to each of many, by its own chat template.

        Args:
            messages: Dicts with "role" and "content".
        """
        one_only = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one_only else messages
        tokenizer = self.get_tokenizer()
        texts = [
            tokenizer.apply_chat_template(list(one), tokenize=False, add_generation_prompt=True)
            for one in conversations
        ]
        prompts: list[PromptInput] = [
            {"prompt": text, "prompt_token_ids": tokenizer.encode(text, add_special_tokens=False)}
            for text in texts
        ]
        return self.generate(prompts, sampling_params, use_tqdm=use_tqdm)

    def get_tokenizer(self) -> Tokenizer:
        return self.llm_engine.get_tokenizer()

    def _run_all(
        self,
        batch: list[PromptInput],
        params: Sequence[SamplingParams | PoolingParams],
        priorities: list[int],
        *,
        use_tqdm: bool,
    ) -> list[Any]:
        """Checks and adds all requests, and runs until they have finished."""
        checked = self._check_all(batch, params)
        ids: list[str] = []
        try:
            for prompt, one, rank in zip(checked, params, priorities, strict=True):
                request_id = str(self._num_requests)
                self.llm_engine.add_request(request_id, prompt, one, priority=rank)
                ids.append(request_id)
                self._num_requests += 1
            return self._run(ids, use_tqdm=use_tqdm)
        except BaseException:
            self.llm_engine.abort_request(ids)
            raise

    def _check_all(
        self, batch: list[PromptInput], params: Sequence[SamplingParams | PoolingParams]
    ) -> list[Prompt]:
        """All prompts are checked before the first one starts, and all bad ones are named."""
        checked: list[Prompt] = []
        problems: list[InvalidRequestError] = []
        where: list[int] = []
        for i, (prompt, one) in enumerate(zip(batch, params, strict=True)):
            try:
                checked.append(self.llm_engine.check_request(prompt, one))
            except InvalidRequestError as error:
                problems.append(error)
                where.append(i)
        if not problems:
            return checked
        texts = [str(error).removeprefix("request 'new': ") for error in problems[:5]]
        lines = [f"prompts[{i}]: {text}" for i, text in zip(where, texts, strict=False)]
        if len(problems) > len(lines):
            lines.append(f"and {len(problems) - len(lines)} more")
        note = f"; none of the {len(batch)} prompts was started" if len(batch) > 1 else ""
        raise type(problems[0])("; ".join(lines) + note)

    def _run(self, ids: list[str], *, use_tqdm: bool) -> list[AnyRequestOutput]:
        """Steps until all of these requests have finished."""
        done: dict[str, AnyRequestOutput] = {}
        missing = set(ids)
        with deferred_interrupt() as interrupted, _progress(len(ids), use_tqdm) as progress:
            while missing:
                if interrupted():
                    raise KeyboardInterrupt
                for output in self.llm_engine.step():
                    if output.finished and output.request_id in missing:
                        missing.discard(output.request_id)
                        done[output.request_id] = output
                        progress(output)
        return [done[request_id] for request_id in ids]


@contextmanager
def _progress(total: int, use_tqdm: bool) -> Iterator[Callable[[AnyRequestOutput], None]]:
    """A bar over requests, with the estimated speeds that vLLM shows."""
    with tqdm(
        total=total, desc="Processed prompts", dynamic_ncols=True, disable=not use_tqdm
    ) as bar:
        tokens = {"input": 0, "output": 0}

        def advance(output: AnyRequestOutput) -> None:
            tokens["input"] += len(output.prompt_token_ids)
            if isinstance(output, RequestOutput):
                tokens["output"] += sum(len(one.token_ids) for one in output.outputs)
            elapsed = max(bar.format_dict["elapsed"], 1e-9)
            speeds = (f"{name}: {count / elapsed:.2f} toks/s" for name, count in tokens.items())
            bar.postfix = "est. speed " + ", ".join(speeds)
            bar.update(1)

        yield advance
