"""Tokenizers and chat templates in adapters' folders: used, the model's, or refused by name."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jax_engine import LLM, SamplingParams
from jax_engine.errors import ConfigError, InvalidRequestError, WeightsError
from jax_engine.lora import adapter_templates
from jax_engine.lora.adapter_registry import AdapterRegistry
from jax_engine.lora.adapter_templates import MAX_KNOWN, TokenizerCheck, own_template, own_templates
from jax_engine.lora.request import LoRARequest
from jax_engine.tokenization.tokenizer import Tokenizer, load_tokenizer
from tests.lora.adapters import modules, tensors_of, write_folder
from tests.support.byte_tokenizer import CHAT_TEMPLATE, EOS_TOKEN, VOCAB, save_byte_tokenizer
from tests.support.tiny_llama import byte_llama

EOS, LETTER = VOCAB - 1, "a"
OWN = CHAT_TEMPLATE.replace("[", "<").replace("]", ">")
HI = [{"role": "user", "content": "hi"}]
ONE = SamplingParams(temperature=0.0, max_tokens=1)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    """The model's."""
    model = tmp_path / "model"
    model.mkdir()
    save_byte_tokenizer(model)
    return load_tokenizer(model)


@pytest.fixture
def copied(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """An adapter's folder with the model's files, as trainers leave it."""
    return Path(shutil.copytree(tmp_path / "model", tmp_path / "adapter"))


def edit(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes a JSON file."""
    found = json.loads(file.read_text()) if file.exists() else {}
    change(found)
    file.write_text(json.dumps(found))


def check(tokenizer: Tokenizer, folder: Path) -> None:
    TokenizerCheck(tokenizer, [EOS])(folder)


def test_a_folder_without_a_tokenizer(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    check(tokenizer, tmp_path / "bare")
    assert own_templates(tmp_path / "bare", tokenizer) == {}
    (tmp_path / "adapter.gguf").write_bytes(b"GGUF")
    assert own_templates(tmp_path / "adapter.gguf", tokenizer) == {}


def test_the_model_s_own_files_are_read_once(
    tokenizer: Tokenizer, copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainers write them at each step, and beside each adapter."""
    read: list[Path] = []

    def counted(folder: Path) -> Tokenizer:
        read.append(folder)
        return load_tokenizer(folder)

    monkeypatch.setattr(adapter_templates, "load_tokenizer", counted)
    found = TokenizerCheck(tokenizer, [EOS])
    second = Path(shutil.copytree(copied, tmp_path / "second"))
    for folder in (copied, copied, second):
        found(folder)
    assert read == [copied] and own_templates(copied, tokenizer) == {}
    edit(second / "tokenizer_config.json", lambda one: one.update(padding_side="left"))
    found(second)
    assert read == [copied, second], "other files are looked at"
    for number in range(2 * MAX_KNOWN):
        edit(second / "tokenizer_config.json", lambda one: one.update(number=number))  # noqa: B023
        found(second)
        assert len(found._known) <= MAX_KNOWN


def rename(found: dict[str, Any]) -> None:
    found["model"]["vocab"]["novel"] = found["model"]["vocab"].pop(LETTER)


def swap(found: dict[str, Any]) -> None:
    vocab = found["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def leave_out(found: dict[str, Any]) -> None:
    del found["model"]["vocab"][LETTER]
    found["model"]["vocab"][EOS_TOKEN] = EOS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rename, "its token 'novel' (97) is none of the model's"),
        (swap, "its token 'b' (97) is 98 in the model's"),
        (leave_out, "whose token 'a' (97) is not in it"),
    ],
)
def test_another_vocabulary(change: Any, words: str, tokenizer: Tokenizer, copied: Path) -> None:
    edit(copied / "tokenizer.json", change)
    with pytest.raises(ConfigError, match="another vocabulary than the model") as error:
        check(tokenizer, copied)
    assert words in str(error.value) and "delete the tokenizer's files" in str(error.value)
    assert str(copied) in str(error.value)


def test_the_model_may_have_more_tokens_at_the_end(tokenizer: Tokenizer, copied: Path) -> None:
    """Padded vocabularies of GGUF files do."""
    tokenizer.backend.add_tokens(["[PAD257]", "[PAD258]"])
    check(tokenizer, copied)


def test_the_same_vocabulary_written_otherwise(tokenizer: Tokenizer, copied: Path) -> None:
    file = copied / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()), indent=7))
    check(tokenizer, copied)


@pytest.mark.parametrize(
    "files",
    [
        {"added_tokens.json": {"<new>": VOCAB}},
        {"tokenizer_config.json": {"added_tokens_decoder": {str(VOCAB): {"content": "<new>"}}}},
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_an_added_token(
    files: dict[str, Any], whole: bool, tokenizer: Tokenizer, copied: Path
) -> None:
    if not whole:
        (copied / "tokenizer.json").unlink()
    for name, fields in files.items():
        edit(copied / name, lambda one, fields=fields: one.update(fields))
    with pytest.raises(ConfigError, match=r"'<new>' \(257\) is none of the model's"):
        check(tokenizer, copied)


def test_an_added_token_that_the_model_has(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "added_tokens.json").write_text(json.dumps({EOS_TOKEN: EOS}))
    check(tokenizer, folder)


@pytest.mark.parametrize("name", ["bos_token", "eos_token"])
def test_texts_that_begin_or_end_otherwise(name: str, tokenizer: Tokenizer, copied: Path) -> None:
    edit(copied / "tokenizer_config.json", lambda one: one.update({name: "a"}))
    with pytest.raises(ConfigError, match=f"has the {name} 'a', which is not the model's"):
        check(tokenizer, copied)


def test_any_of_the_model_s_ends_will_do(tokenizer: Tokenizer, copied: Path) -> None:
    """The ends of generation_config.json count, too."""
    edit(copied / "tokenizer_config.json", lambda one: one.update(eos_token={"content": "a"}))
    TokenizerCheck(tokenizer, [EOS, ord("a")])(copied)


def test_templates_of_its_own(tokenizer: Tokenizer, copied: Path) -> None:
    (copied / "chat_template.jinja").write_text(OWN)
    found = own_templates(copied, tokenizer)
    assert found == {"default": OWN}
    assert own_template(found, with_tools=True) == own_template(found, with_tools=False) == OWN
    both = found | {"tool_use": "tools"}
    assert own_template(both, with_tools=True) == "tools"
    assert own_template(both, with_tools=False) == OWN
    assert own_template({}, with_tools=False) is None


def test_a_template_in_the_configuration(tokenizer: Tokenizer, copied: Path) -> None:
    edit(copied / "tokenizer_config.json", lambda one: one.update(chat_template=OWN))
    assert own_templates(copied, tokenizer) == {"default": OWN}


def test_damaged_files(tokenizer: Tokenizer, copied: Path) -> None:
    (copied / "tokenizer_config.json").write_text("{")
    for call in (check, lambda one, folder: own_templates(folder, one)):
        with pytest.raises(WeightsError, match="tokenizer_config"):
            call(tokenizer, copied)


def test_a_registry_refuses_it_by_name(tokenizer: Tokenizer, copied: Path) -> None:
    """It also notices a tokenizer that is changed beside unchanged weights."""
    write_folder(copied, tensors_of())
    check_folder = TokenizerCheck(tokenizer, [EOS])
    later = time.time() + 10  # than what is written now
    known = AdapterRegistry(modules, 16, 2, lambda: later, check_folder=check_folder)
    lora = LoRARequest("french", 1, str(copied))
    first = known.adapter(lora)
    edit(copied / "tokenizer.json", rename)
    with pytest.raises(InvalidRequestError, match=r"lora_request 'french': .*another vocabulary"):
        known.adapter(lora)
    (copied / "tokenizer.json").unlink()
    assert known.adapter(lora) is first


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    path = byte_llama(tmp_path_factory.mktemp("models") / "chat", max_position_embeddings=256)
    return LLM(str(path), block_size=8, num_gpu_blocks_override=100, enable_lora=True)


def offered(llm: LLM, folder: Path, number: int, template: str | None) -> LoRARequest:
    of = llm.llm_engine._adapters.modules
    write_folder(folder, tensors_of(["model.layers.0.self_attn.q_proj"], of=of, seed=number))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template)
    return LoRARequest(folder.name, number, str(folder))


@pytest.mark.slow
def test_a_chat_has_its_adapter_s_template(llm: LLM, tmp_path: Path) -> None:
    mine, plain = offered(llm, tmp_path / "a", 1, OWN), offered(llm, tmp_path / "b", 2, None)

    def prompts(loras: Any, chats: Any = (HI, HI, HI), **options: Any) -> list[str | None]:
        found = llm.chat(list(chats), ONE, use_tqdm=False, lora_request=loras, **options)
        return [one.prompt for one in found]

    base, own = "[user]hi[assistant]", "<user>hi<assistant>"
    assert prompts([mine, None, plain]) == [own, base, base]
    assert prompts(mine) == [own] * 3 and prompts(mine, HI) == [own]
    assert prompts(mine, chat_template="given") == ["given"] * 3
    (tmp_path / "a" / "chat_template.jinja").write_text("newer")
    assert prompts(mine) == ["newer"] * 3
    for broken in ("{{ nothing(1) }}", "{% if %}", "{{ raise_exception('no') }}"):
        (tmp_path / "a" / "chat_template.jinja").write_text(broken)
        with pytest.raises(InvalidRequestError, match=r"^lora_request 'a': The chat template refu"):
            prompts(mine, HI)
        with pytest.raises(InvalidRequestError, match=r"^conversation 1: lora_request 'a': The ch"):
            prompts([None, mine, plain])
    with pytest.raises(InvalidRequestError, match=r"^The chat template refuses"):
        prompts(mine, HI, chat_template="{% if %}")  # which is not the adapter's
    with pytest.raises(InvalidRequestError, match=r"^messages\[0\]"):
        prompts(mine, [{"role": 1}])  # nor is it the template's fault
    (tmp_path / "a" / "tokenizer_config.json").write_text("{")
    with pytest.raises(InvalidRequestError, match=r"lora_request 'a': .*tokenizer_config"):
        prompts(mine)
    with pytest.raises(InvalidRequestError, match="one entry for each of the 3 prompts, got 2"):
        prompts([plain, None])


def test_an_adapter_with_another_tokenizer_is_refused(llm: LLM, tmp_path: Path) -> None:
    mine = offered(llm, tmp_path / "a", 1, None)
    (tmp_path / "a" / "added_tokens.json").write_text(json.dumps({"<new>": VOCAB}))
    with pytest.raises(InvalidRequestError, match=r"lora_request 'a': .*'<new>'"):
        llm.generate("x", ONE, use_tqdm=False, lora_request=mine)
