"""`LoRARequest`: the adapter that a request asks for, as vLLM names it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jax_engine.checks import check_integer, shown
from jax_engine.errors import InvalidRequestError
from jax_engine.lora.adapter import Adapter

MAX_ID = 2**63 - 1
# Fields of vLLM's that would change what is computed, and why they must have their defaults.
_REFUSED = {
    "is_3d_lora_weight": (False, "experts are not adapted"),
    "long_lora_max_len": (None, "an adapter does not change the longest text"),
    "tensorizer_config_dict": (None, "adapters are read from safetensors and GGUF files"),
}


@dataclass(frozen=True)
class LoRARequest:
    """An adapter: by the path of its files, or in memory.

    The files decide what is computed; name and id are labels. A request gets the adapter that lies
    at its path when the request is made, even if another request gave the same name or id to
    another path. Files that have changed are read again.

    Attributes:
        lora_name: What outputs and metrics call it.
        lora_int_id: What `LLMEngine.remove_lora` and `pin_lora` call it, at least 1.
        lora_path: A folder of PEFT's, or a GGUF file.
        base_model_name: Only a label, as in vLLM.
        load_inplace: No effect: whatever its value, changed files are noticed, and unchanged ones
            are not read again.
        is_3d_lora_weight, long_lora_max_len, tensorizer_config_dict: Only their defaults.
        adapter: In the place of a path: what `LLMEngine.read_lora` returned.
        lora_tensors: In the place of a path: arrays by PEFT's names, which
            `get_peft_model_state_dict` gives. They are copied, and hashed, with each call.
        peft_config: The configuration of these arrays, as in adapter_config.json.
        digest: With a path: the version that is meant, as `AsyncLLM.load_lora` tells it. While it
            is in memory its files are not looked at, and may be gone. None: what the path has now.

    Raises:
        InvalidRequestError: A field has a wrong type or value, or there is not exactly one of
            `lora_path`, `adapter` and `lora_tensors`.
    """

    lora_name: str
    lora_int_id: int
    lora_path: str = ""
    base_model_name: str | None = None
    load_inplace: bool = False
    is_3d_lora_weight: bool = False
    long_lora_max_len: int | None = field(default=None, kw_only=True)
    tensorizer_config_dict: Mapping[str, Any] | None = field(default=None, kw_only=True)
    adapter: Adapter | None = field(default=None, kw_only=True, repr=False)
    lora_tensors: Mapping[str, np.ndarray] | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )
    peft_config: Mapping[str, Any] | None = field(
        default=None, kw_only=True, repr=False, compare=False
    )
    digest: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.lora_path, Path):
            object.__setattr__(self, "lora_path", str(self.lora_path))
        for name, kinds, words in (
            ("lora_name", str, "a string"),
            ("lora_path", str, "a string"),
            ("base_model_name", str | None, "a string or None"),
            ("load_inplace", bool, "True or False"),
            ("adapter", Adapter | None, "an Adapter or None"),
            ("lora_tensors", Mapping | None, "a dict of arrays or None"),
            ("peft_config", Mapping | None, "a dict or None"),
            ("digest", str | None, "a string or None"),
        ):
            if not isinstance(getattr(self, name), kinds):
                self._refuse(name, words)
        if not self.lora_name or not _is_text(self.lora_name):
            self._refuse("lora_name", "valid Unicode of at least 1 character")
        check_integer("lora_request: lora_int_id", self.lora_int_id, 1, MAX_ID)
        object.__setattr__(self, "lora_int_id", int(self.lora_int_id))
        for name, (default, reason) in _REFUSED.items():
            if getattr(self, name) != default:
                self._refuse(name, repr(default), f": {reason}")
        self._check_source()

    def _check_source(self) -> None:
        given = [self.lora_path != "", self.adapter is not None, self.lora_tensors is not None]
        if sum(given) != 1:
            found = ", ".join(
                name
                for name, one in zip(("lora_path", "adapter", "lora_tensors"), given, strict=True)
                if one
            )
            raise InvalidRequestError(
                "lora_request must have exactly one of lora_path, adapter and lora_tensors, got "
                f"{found or 'none of them (lora_path is empty)'}"
            )
        if (self.lora_tensors is None) != (self.peft_config is None):
            missing = "peft_config" if self.peft_config is None else "lora_tensors"
            raise InvalidRequestError(
                f"lora_request: lora_tensors and peft_config must come together, got no {missing}"
            )
        if self.digest is not None and not self.lora_path:
            self._refuse("digest", "None without a lora_path")
        if "\0" in self.lora_path or not _is_text(self.lora_path):
            self._refuse("lora_path", "a valid path")

    def _refuse(self, name: str, wanted: str, why: str = "") -> None:
        raise InvalidRequestError(
            f"lora_request: {name} must be {wanted}, got {shown(getattr(self, name))}{why}"
        )

    @property
    def name(self) -> str:
        """`lora_name`."""
        return self.lora_name

    @property
    def adapter_id(self) -> int:
        """`lora_int_id`."""
        return self.lora_int_id

    @property
    def path(self) -> str:
        """`lora_path`."""
        return self.lora_path


def _is_text(text: str) -> bool:
    """Whether it can be written: there is no lone surrogate in it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def one_lora_each(lora_request: Any, num_prompts: int) -> list[LoRARequest | None]:
    """One adapter for each prompt: the same for all, or those given; None is none.

    Raises:
        InvalidRequestError: It is neither an adapter nor as many of them as there are prompts.
    """
    if not isinstance(lora_request, list | tuple):
        return [checked_lora(lora_request)] * num_prompts
    if len(lora_request) != num_prompts:
        raise InvalidRequestError(
            f"lora_request must have one entry for each of the {num_prompts} prompts, got "
            f"{len(lora_request)}"
        )
    return [checked_lora(one, f"lora_request[{i}]") for i, one in enumerate(lora_request)]


def checked_lora(lora_request: Any, name: str = "lora_request") -> LoRARequest | None:
    """The adapter that is asked for. Raises InvalidRequestError if it is neither one nor None."""
    if lora_request is None or isinstance(lora_request, LoRARequest):
        return lora_request
    raise InvalidRequestError(f"{name} must be a LoRARequest or None, got {shown(lora_request)}")


def no_lora(name: str) -> InvalidRequestError:
    """The error of a request with an adapter where the engine's settings allow none."""
    return InvalidRequestError(
        f"lora_request must be None with enable_lora=False, got {name!r}: build the engine with "
        "enable_lora=True"
    )
