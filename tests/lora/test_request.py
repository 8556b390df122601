"""What a request may say of its adapter, and what is refused by name."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jax_engine
from jax_engine import InvalidRequestError, LoRARequest
from jax_engine.compat.names import where
from jax_engine.lora.request import no_lora, one_lora_each
from tests.support.some_adapters import some_adapter, some_lora

ONE = LoRARequest("a", 1, "/somewhere")


def test_the_fields_have_vllm_s_names_and_places() -> None:
    request = LoRARequest("a", 7, "/p", "the base", True)
    assert (request.lora_name, request.lora_int_id, request.lora_path) == ("a", 7, "/p")
    assert (request.name, request.adapter_id, request.path) == ("a", 7, "/p")
    assert request.base_model_name == "the base" and request.load_inplace
    assert where("vllm.lora.request.LoRARequest") == ("jax_engine.lora.request", "LoRARequest")
    assert jax_engine.LoRARequest is LoRARequest


def test_a_digest_is_of_what_lies_at_a_path() -> None:
    assert LoRARequest("a", 1, "/p", digest="ab").digest == "ab"
    with pytest.raises(InvalidRequestError, match="digest must be None without a lora_path"):
        LoRARequest("a", 1, adapter=some_adapter(0), digest="ab")


def test_numbers_and_paths_of_other_types_are_taken() -> None:
    request = LoRARequest("a", np.int64(3), Path("/p"))  # type: ignore[arg-type]
    assert (request.lora_int_id, request.lora_path) == (3, "/p")
    assert type(request.lora_int_id) is int


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"lora_name": ""}, "lora_name must be valid Unicode of at least 1 character, got ''"),
        ({"lora_name": "\ud800"}, "lora_name must be valid Unicode"),
        ({"lora_name": 3}, "lora_name must be a string, got 3"),
        ({"lora_int_id": 0}, "lora_int_id must be in [1, 9223372036854775807], got 0"),
        ({"lora_int_id": -5}, "lora_int_id must be in [1, 9223372036854775807], got -5"),
        ({"lora_int_id": 2**63}, "lora_int_id must be in"),
        ({"lora_int_id": True}, "lora_int_id must be an integer, got True"),
        ({"lora_int_id": "1"}, "lora_int_id must be an integer, got '1'"),
        ({"lora_path": ""}, "exactly one of lora_path, adapter and lora_tensors, got none"),
        ({"lora_path": "a\0b"}, "lora_path must be a valid path"),
        ({"lora_path": "\ud800"}, "lora_path must be a valid path"),
        ({"lora_path": None}, "lora_path must be a string, got None"),
        ({"base_model_name": 1}, "base_model_name must be a string or None, got 1"),
        ({"load_inplace": 1}, "load_inplace must be True or False, got 1"),
        ({"is_3d_lora_weight": True}, "is_3d_lora_weight must be False, got True: experts"),
        ({"long_lora_max_len": 4}, "long_lora_max_len must be None, got 4: an adapter does not"),
        ({"tensorizer_config_dict": {}}, "tensorizer_config_dict must be None, got {}"),
        ({"adapter": "a"}, "adapter must be an Adapter or None, got 'a'"),
        ({"adapter": some_adapter(0)}, "exactly one of .*, got lora_path, adapter"),
        ({"lora_tensors": {}, "peft_config": {}}, "exactly one of .*, got lora_path, lora_tensors"),
        ({"lora_tensors": [1]}, "lora_tensors must be a dict of arrays or None"),
        ({"digest": 5}, "digest must be a string or None, got 5"),
        ({"peft_config": 5}, "peft_config must be a dict or None, got 5"),
        ({"peft_config": {}}, "must come together, got no lora_tensors"),
        ({"lora_path": "", "lora_tensors": {}}, "must come together, got no peft_config"),
    ],
)
def test_what_is_refused(fields: dict[str, Any], words: str) -> None:
    given = {"lora_name": "a", "lora_int_id": 1, "lora_path": "/p"} | fields
    pattern = words.replace("[", r"\[").replace("]", r"\]").replace("{", r"\{").replace("}", r"\}")
    with pytest.raises(InvalidRequestError, match=pattern):
        LoRARequest(**given)


def test_a_request_comes_through_bytes() -> None:
    for one in (ONE, some_lora(2)):
        for sent in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):
            assert sent == one and hash(sent) == hash(one)


def test_requests_are_equal_if_they_say_the_same() -> None:
    assert LoRARequest("a", 1, "/somewhere") == ONE
    assert len({ONE, LoRARequest("b", 1, "/somewhere"), LoRARequest("a", 2, "/somewhere"),
                LoRARequest("a", 1, "/elsewhere"), some_lora(0), some_lora(1)}) == 6  # fmt: skip


def test_weights_are_not_shown() -> None:
    assert len(repr(some_lora(0))) < 300


def test_one_for_all_or_one_for_each() -> None:
    assert one_lora_each(None, 2) == [None, None]
    assert one_lora_each(ONE, 3) == [ONE] * 3
    assert one_lora_each([ONE, None], 2) == [ONE, None]
    assert one_lora_each((None,), 1) == [None]
    assert one_lora_each([], 0) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mine", "lora_request must be a LoRARequest or None, got 'mine'"),
        ([ONE, "mine"], r"lora_request\[1\] must be a LoRARequest or None, got 'mine'"),
        ([ONE], "lora_request must have one entry for each of the 2 prompts, got 1"),
        ([ONE] * 3, "lora_request must have one entry for each of the 2 prompts, got 3"),
        ({"lora_name": "a"}, "lora_request must be a LoRARequest or None"),
    ],
)
def test_what_is_no_adapter_of_two_prompts(given: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        one_lora_each(given, 2)


def test_an_engine_without_adapters_says_what_to_do() -> None:
    assert "build the engine with enable_lora=True" in str(no_lora("mine"))
