"""LangChain's package for OpenAI."""

from typing import Any

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr


class Animal(BaseModel):
    """An animal."""

    name: str
    legs: int


def options(base_url: str, **more: Any) -> dict[str, Any]:
    return {"model": "smollm2", "base_url": base_url, "api_key": SecretStr("none")} | more


def test_a_chat_at_once_as_a_stream_and_in_a_batch(base_url: str) -> None:
    chat = ChatOpenAI(**options(base_url, temperature=0.0, max_tokens=12))
    answer = chat.invoke("What is the capital of France?")
    assert "Paris" in str(answer.content) and answer.usage_metadata is not None
    pieces = [one.content for one in chat.stream("What is the capital of France?")]
    assert "".join(map(str, pieces)) == answer.content and len(pieces) > 2
    batch = chat.batch(["What is the capital of France?"] * 3)
    assert [one.content for one in batch] == [answer.content] * 3


def test_an_answer_of_a_given_form(base_url: str) -> None:
    chat = ChatOpenAI(**options(base_url, temperature=0.0, max_tokens=60))
    found = chat.with_structured_output(Animal, method="json_schema").invoke("Describe a dog.")
    assert isinstance(found, Animal) and found.name


def test_completions_and_embeddings(base_url: str) -> None:
    text = OpenAI(**options(base_url, temperature=0.0, max_tokens=4))
    assert "Paris" in text.invoke("The capital of France is")
    vectors = OpenAIEmbeddings(**options(base_url, check_embedding_ctx_length=False))
    one, two = vectors.embed_documents(["One", "Two"])
    assert len(one) == len(two) == 576 and one != two
