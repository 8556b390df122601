"""The LoRA adapters that a server offers by name: how flags name them, how names come and go."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from jax_engine.checks import shown
from jax_engine.errors import ConfigError, InvalidRequestError, WeightsError
from jax_engine.lora.adapter_templates import own_templates
from jax_engine.lora.request import LoRARequest
from jax_engine.serving.async_llm import AsyncLLM

UPDATING = "VLLM_ALLOW_RUNTIME_LORA_UPDATING"
_FIELDS = ("name", "path", "base_model_name")


class LoRAModule(NamedTuple):
    """An adapter of `--lora-modules`, with vLLM's names."""

    name: str
    path: str
    base_model_name: str | None = None


def may_update() -> bool:
    """Whether clients may load and unload adapters: vLLM's variable says so."""
    return os.environ.get(UPDATING, "0").strip().lower() in ("1", "true")


def lora_modules(values: Sequence[str] | None) -> list[LoRAModule]:
    """Reads the values of `--lora-modules`: name=path, a JSON object, or a JSON list of objects.

    Raises:
        ConfigError: one is neither, or two have the same name.
    """
    found: list[LoRAModule] = []
    for value in values or ():
        if value.lstrip().startswith(("{", "[")):
            found += _of_json(value)
        else:
            name, _, path = value.partition("=")
            if not name or not path:
                raise _refused(value, "name=path or a JSON object")
            found.append(LoRAModule(name, path))
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"--lora-modules has {shown(name)} twice: give each adapter a name")
    return found


def _of_json(value: str) -> list[LoRAModule]:
    try:
        given = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _refused(value, "name=path or sound JSON") from error
    return [_of_object(one, value) for one in (given if isinstance(given, list) else [given])]


def _of_object(given: Any, value: str) -> LoRAModule:
    wanted = 'JSON with strings "name", "path" and perhaps "base_model_name"'
    if not isinstance(given, dict) or not {"name", "path"} <= given.keys() <= set(_FIELDS):
        raise _refused(value, wanted)
    fields = {name: one for name, one in given.items() if one is not None}
    if not all(isinstance(one, str) and one for one in fields.values()):
        raise _refused(value, wanted)
    if not {"name", "path"} <= fields.keys():
        raise _refused(value, wanted)
    return LoRAModule(**fields)


def _refused(value: str, wanted: str) -> ConfigError:
    return ConfigError(f"--lora-modules must be {wanted}, got {shown(value)}")


class NamedAdapter(NamedTuple):
    """An adapter that has a name.

    Attributes:
        templates: its own chat templates by name; empty: the model's are used.
    """

    lora: LoRARequest
    templates: Mapping[str, str]


@dataclass
class Adapters:
    """The adapters by name. A request holds its own: it does not notice that a name goes.

    Args:
        base_names: What the model itself is called, which no adapter may be.
    """

    llm: AsyncLLM
    base_names: tuple[str, ...]
    _named: dict[str, NamedAdapter] = field(default_factory=dict)
    _ids: Any = field(default_factory=lambda: count(1))
    _loading: asyncio.Lock = field(default_factory=asyncio.Lock)

    def get(self, name: str | None) -> NamedAdapter | None:
        """The adapter of a name; None: it is none's."""
        return None if name is None else self._named.get(name)

    def all(self) -> list[NamedAdapter]:
        """All adapters, in the order in which they came."""
        return list(self._named.values())

    async def load(self, module: LoRAModule, *, inplace: bool = False) -> bool:
        """Reads an adapter and gives it its name; False if it had that already, and may not change.

        Loads come one after another, so that of two with one name the second sees the first.

        Raises:
            InvalidRequestError: It cannot be read, does not suit the model, or has its name.
        """
        if module.name in self.base_names:
            raise InvalidRequestError(
                f"lora_name must not be a name of the model, got {shown(module.name)}"
            )
        async with self._loading:
            before = self._named.get(module.name)
            if before is not None and not inplace:
                return False
            self._named[module.name] = await self._read(module, before)
        return True

    async def _read(self, module: LoRAModule, before: NamedAdapter | None) -> NamedAdapter:
        """The adapter that comes in the place of another, whose id it gets."""
        path = os.path.abspath(os.path.expanduser(module.path))
        number = next(self._ids) if before is None else before.lora.lora_int_id
        new = LoRARequest(module.name, number, path, module.base_model_name)
        templates = await self._templates(new)
        loaded = await self.llm.load_lora(new)
        if self._named.get(module.name) is not before:
            # The name was unloaded meanwhile, and its id was forgotten before this load or after.
            loaded = replace(loaded, lora_int_id=next(self._ids))
            await self.llm.add_lora(loaded)
            await self.llm.remove_lora(number)
        return NamedAdapter(loaded, templates)

    async def _templates(self, lora: LoRARequest) -> Mapping[str, str]:
        """The chat templates of an adapter's files, read in another thread."""
        if self.llm.config.skip_tokenizer_init:
            return {}
        tokenizer = self.llm.text_tokenizer()
        try:
            return await asyncio.to_thread(own_templates, lora.lora_path, tokenizer)
        except WeightsError as error:
            raise InvalidRequestError(f"lora_request {lora.lora_name!r}: {error}") from error

    async def unload(self, name: str) -> bool:
        """Forgets a name, and whatever runs with it goes on; False if there is no such name."""
        gone = self._named.pop(name, None)
        if gone is None:
            return False
        await self.llm.remove_lora(gone.lora.lora_int_id)
        return True

    async def load_all(self, modules: Sequence[LoRAModule]) -> None:
        """Reads the adapters that the server starts with.

        Raises:
            ConfigError: One cannot be offered.
        """
        for one in modules:
            try:
                await self.load(one)
            except InvalidRequestError as error:
                raise ConfigError(f"--lora-modules {one.name}={one.path}: {error}") from error
