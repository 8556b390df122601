"""The methods of `AsyncLLM` that look at its engine and change nothing."""

from pathlib import Path
from typing import Any

from jax_engine.config import EngineConfig
from jax_engine.engine.default_sampling import default_sampling
from jax_engine.errors import EngineDeadError, InvalidRequestError
from jax_engine.pooling_params import PoolingParams, PoolingTask, default_pooling
from jax_engine.sampling_params import SamplingParams
from jax_engine.serving.engine_client import EngineClient
from jax_engine.serving.messages import Ready
from jax_engine.serving.open_requests import OpenRequests
from jax_engine.serving.text_encoder import TextEncoder
from jax_engine.tokenization.tokenizer import Tokenizer


class AsyncViews:
    """A part of `AsyncLLM`."""

    config: EngineConfig
    _client: EngineClient
    _ready: Ready
    _requests: OpenRequests
    _tokenizer: Tokenizer | None
    _encoder: TextEncoder | None

    @property
    def model(self) -> str:
        """The name or path of the model."""
        return self._ready.model

    @property
    def max_model_len(self) -> int:
        """The longest prompt plus output, in tokens."""
        return self._ready.max_model_len

    @property
    def head_task(self) -> str | None:
        """ "classify" or "token_classify"; None: the model has no head."""
        return self._ready.head_task

    @property
    def labels(self) -> list[str]:
        """The names of the head's scores."""
        return self._ready.labels

    async def check_health(self) -> None:
        """Raises EngineDeadError if the engine cannot answer."""
        problem = self._client.problem()
        if problem is not None:
            raise EngineDeadError(problem)

    @property
    def is_running(self) -> bool:
        """Whether the engine can take requests."""
        return self._client.problem() is None

    @property
    def errored(self) -> bool:
        """Whether the engine cannot take requests any more."""
        return not self.is_running

    @property
    def dead_error(self) -> BaseException:
        """The error that all requests raise once the engine has ended."""
        return EngineDeadError(self._client.problem() or "the engine runs")

    @property
    def engine_pid(self) -> int:
        """The id of the engine's process."""
        return self._client.pid

    @property
    def num_unfinished_requests(self) -> int:
        """Requests without their last output."""
        return len(self._requests)

    async def get_tokenizer(self) -> Any:
        """Hugging Face's `PreTrainedTokenizerFast`, made when first used.

        Raises:
            InvalidRequestError: the engine was built without a tokenizer.
        """
        return self.text_tokenizer().hugging_face

    def text_tokenizer(self) -> Tokenizer:
        """The engine's own tokenizer. Raises InvalidRequestError if it has none."""
        if self._tokenizer is None:
            raise InvalidRequestError("the engine has no tokenizer (skip_tokenizer_init=True)")
        return self._tokenizer

    def text_encoder(self) -> TextEncoder:
        """What tokenises texts beside the event loop. Raises as `text_tokenizer`."""
        self.text_tokenizer()
        assert self._encoder is not None
        return self._encoder

    def get_default_sampling_params(self) -> SamplingParams:
        """As `LLM.get_default_sampling_params`."""
        return SamplingParams.from_optional(**self.default_sampling())

    def default_sampling(self) -> dict[str, Any]:
        """The fields of `SamplingParams` that the model's makers suggest."""
        return default_sampling(self.config, Path(self._ready.source))

    def default_pooling(self, task: PoolingTask | None = None) -> PoolingParams:
        """The parameters of a pooling request without any: `EngineConfig.pooler_config`."""
        return default_pooling(self.config.pooler_config, task)

    async def get_stats(self) -> dict[str, Any]:
        """The fields of `EngineStats`."""
        return dict(await self._requests.ask("stats"))

    async def get_state(self) -> dict[str, Any]:
        """The fields of `EngineState`; its requests have their ids, and as "name" the engine's."""
        return await self._requests.state()

    @property
    def step_seconds(self) -> float | None:
        """For how long the current step had run when the engine last said so; None: none ran."""
        return self._client.step_seconds

    async def get_metrics(self) -> list[dict[str, Any]]:
        """The fields of `LLM.get_metrics`' metrics, and as "kind" the name of each one's class."""
        return list(await self._requests.ask("metrics"))
