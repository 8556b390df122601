"""What the engine knows of a request once it has accepted it, as one flat table of fields."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

from pydantic import BaseModel

from jax_engine import LLMEngine
from jax_engine.engine.pooling.pooling import PooledParams
from jax_engine.engine.requests.request import Request
from jax_engine.tokenization.tokenizer import Tokenizer

type Fields = dict[str, Any]


def fields_of(request: Request, tokenizer: Tokenizer) -> Fields:
    """Fields of the parameters by their names; of the rest with a name of their own."""
    params, adapter = request.params, request.group.adapter
    pooled = isinstance(params, PooledParams)
    shown = params.pooling if isinstance(params, PooledParams) else params
    found = {one.name: getattr(shown, one.name) for one in dataclasses.fields(shown)}
    text = tokenizer.decode(request.prompt.token_ids, skip_special_tokens=False)
    return found | {
        "is pooled": pooled,
        "prompt": text,
        "prediction": tokenizer.decode(request.prompt.prediction, skip_special_tokens=False),
        "cache_salt": request.group.cache_salt,
        "salt of the prompt": request.prompt.cache_salt,
        "priority": request.group.priority,
        "adapter": None if adapter is None else adapter.digest,
        "lora_request": request.lora,
        "arrival_time": request.arrival_time,
        "timeout": request.timeout,
    }


def changed(found: Fields, plain: Fields) -> Fields:
    """The fields of a request that are not as those of another."""
    assert found.keys() == plain.keys()
    return {name: value for name, value in found.items() if value != plain[name]}


def as_wanted(found: Fields, wanted: Fields) -> bool:
    """Whether these fields have changed and no other. A function says whether a value will do."""
    if found.keys() != wanted.keys():
        return False
    return all(
        one(found[name]) if callable(one) else found[name] == one for name, one in wanted.items()
    )


def leaves(model: type[BaseModel], before: str = "") -> Iterator[str]:
    """The names of all fields of a request's class, those of its objects with a dot."""
    for name, one in model.model_fields.items():
        path = before + (one.alias or name)
        inner = [kind for kind in (one.annotation, *get_args(one.annotation)) if _is_model(kind)]
        if inner:
            yield from leaves(inner[0], f"{path}.")
        else:
            yield path


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


@contextmanager
def recorded(monkeypatch: Any) -> Iterator[list[Request]]:
    """Requests as all engines accept them. The next step ends them, and no device computes it."""
    accepted: list[Request] = []
    add_all = LLMEngine.add_all

    def add(self: LLMEngine, requests: Any, *rest: Any) -> None:
        add_all(self, requests, *rest)
        accepted.extend(requests)

    def step(self: LLMEngine) -> None:
        for request_id in list(self._running.requests):
            self._running.end(request_id, "no device", self.clock())

    monkeypatch.setattr(LLMEngine, "add_all", add)
    monkeypatch.setattr(LLMEngine, "_run_step", step)
    yield accepted
