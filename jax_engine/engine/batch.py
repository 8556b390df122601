"""A batch of prompts: all are checked before the first one starts; a bar shows how many ended."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tqdm import tqdm

from jax_engine.engine.llm_engine import LLMEngine
from jax_engine.engine.prompts import PromptInput
from jax_engine.engine.request_checks import CheckedRequest
from jax_engine.errors import InvalidRequestError
from jax_engine.outputs import AnyRequestOutput, RequestOutput
from jax_engine.pooling_params import PoolingParams
from jax_engine.sampling_params import SamplingParams

type Progress = Callable[[AnyRequestOutput], None]


def check_all(
    engine: LLMEngine,
    prompts: Sequence[PromptInput],
    params: Sequence[SamplingParams | PoolingParams],
    *,
    use_tqdm: bool = False,
) -> list[CheckedRequest]:
    """What `SharedBatch.add` accepts, for each prompt.

    Raises:
        InvalidRequestError: Something is wrong with some of them; the message says with which.
    """
    checked: list[CheckedRequest] = []
    problems: list[InvalidRequestError] = []
    where: list[int] = []
    pairs = tqdm(
        zip(prompts, params, strict=True),
        total=len(prompts),
        desc="Adding requests",
        disable=not use_tqdm,
    )
    for i, (prompt, one) in enumerate(pairs):
        try:
            checked.append(engine.check_request(prompt, one))
        except InvalidRequestError as error:
            problems.append(error)
            where.append(i)
    if not problems:
        return checked
    texts = [str(error).removeprefix("request 'new': ") for error in problems[:5]]
    lines = [f"prompts[{i}]: {text}" for i, text in zip(where, texts, strict=False)]
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    note = f"; none of the {len(prompts)} prompts was started" if len(prompts) > 1 else ""
    raise type(problems[0])("; ".join(lines) + note)


@contextmanager
def shown(total: int, use_tqdm: bool) -> Iterator[Progress]:
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
