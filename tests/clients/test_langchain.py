"""LangChain's package for OpenAI."""

from typing import Any

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr
from weather import QUESTION, Weather, conforms


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


def test_a_tool_is_called_at_once_and_as_a_stream(base_url: str) -> None:
    chat = ChatOpenAI(**options(base_url, temperature=0.0, max_tokens=80))
    bound = chat.bind_tools([Weather], tool_choice="required", parallel_tool_calls=False)
    (call,) = bound.invoke(QUESTION).tool_calls
    assert call["name"] == "Weather" and conforms(call["args"])
    first, *others = bound.stream(QUESTION)
    whole: Any = sum(others, start=first)
    assert whole.tool_calls[0]["args"] == call["args"] and len(others) > 1


def test_an_answer_by_a_call(base_url: str) -> None:
    chat = ChatOpenAI(**options(base_url, temperature=0.0, max_tokens=80))
    found = chat.with_structured_output(Weather, method="function_calling").invoke(QUESTION)
    assert isinstance(found, Weather)


def test_completions_and_embeddings(base_url: str) -> None:
    text = OpenAI(**options(base_url, temperature=0.0, max_tokens=4))
    assert "Paris" in text.invoke("The capital of France is")
    vectors = OpenAIEmbeddings(**options(base_url, check_embedding_ctx_length=False))
    one, two = vectors.embed_documents(["One", "Two"])
    assert len(one) == len(two) == 576 and one != two
