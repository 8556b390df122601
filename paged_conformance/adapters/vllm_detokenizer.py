"""vLLM's detokenizers, of the versions from 0.10 on: `fast` (a DecodeStream) and `slow` (Python).

As `vllm_scheduler`: put the folder of an unpacked wheel on the path. It needs `tokenizers` and
`transformers`, which does without PyTorch here.
"""

import importlib
import importlib.util
import sys
from typing import Any

from paged_conformance.adapters import stand_ins
from paged_conformance.adapters.tiny_tokenizers import backend
from paged_conformance.adapters.vllm_scheduler import Settings

_REAL = (
    "vllm.envs", "vllm.utils", "vllm.v1.engine", "vllm.transformers_utils.detokenizer_utils",
    "vllm.tokenizers.detokenizer_utils", "vllm.v1.metrics.stats", "vllm.v1.serial_utils",
)  # fmt: skip
_OTHERS = (
    "torch", "zmq", "PIL", "cachetools", "cloudpickle", "setproctitle", "psutil", "blake3", "cbor2",
)  # fmt: skip
_BUT = ("vllm.utils.torch_utils", "vllm.utils.nccl", "vllm.utils.flashinfer")


def _module() -> Any:
    name = "vllm.v1.engine.detokenizer"
    if name not in sys.modules:
        others = [one for one in _OTHERS if not _there(one)]
        vars(importlib.import_module("transformers"))  # before there are stand-ins
        stand_ins.install(["vllm", *others], _REAL, _BUT)
    return importlib.import_module(name)


def _there(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Vllm:
    """One output.

    Args:
        fast: Which of the two detokenizers.
    """

    def __init__(self, fast: bool, *, kind: str, pieces: list[str], special: list[int]) -> None:
        from transformers import PreTrainedTokenizerFast

        self._fast = fast
        made = backend(kind, pieces, special)
        self._tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=made, additional_special_tokens=[pieces[one] for one in special],
            clean_up_tokenization_spaces=False,
        )  # fmt: skip

    def open(
        self,
        *,
        prompt: list[int],
        stop: list[str],
        include_stop: bool,
        min_tokens: int,
        skip_special_tokens: bool,
    ) -> None:
        params = Settings(
            stop=list(stop), include_stop_str_in_output=include_stop, min_tokens=min_tokens,
            skip_special_tokens=skip_special_tokens, spaces_between_special_tokens=False,
            detokenize=True, output_kind=None,
        )  # fmt: skip
        request = Settings(request_id="r", prompt_token_ids=list(prompt), sampling_params=params)
        module = _module()
        name = "FastIncrementalDetokenizer" if self._fast else "SlowIncrementalDetokenizer"
        self._detokenizer = getattr(module, name)(self._tokenizer, request)
        self._done = False

    def add(self, *, tokens: list[int], ends: bool) -> dict[str, Any]:
        stop = self._detokenizer.update(list(tokens), ends)
        text = self._detokenizer.get_next_output_text(stop is not None or ends, True)
        return {"text": text, "stop": stop}

    def finish(self) -> str:
        return str(self._detokenizer.get_next_output_text(True, True))


class _Factory:
    """Makes targets."""

    def __init__(self, fast: bool) -> None:
        self._fast = fast

    @property
    def capabilities(self) -> frozenset[str]:
        _module()  # here, so that no example waits for imports
        return frozenset({"byte_level", "byte_fallback", "several", "stop_tokens"})

    def __call__(self, **vocabulary: Any) -> Vllm:
        return Vllm(self._fast, **vocabulary)


fast, slow = _Factory(True), _Factory(False)
