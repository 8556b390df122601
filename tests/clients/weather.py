"""A tool that a model which cannot choose well may call: all its arguments are good ones."""

from typing import Any, Literal

from pydantic import BaseModel

QUESTION = "How is the weather in Rome?"


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Rome"]
    days: Literal[1, 2, 3]


def conforms(arguments: Any) -> bool:
    """Whether these are arguments of the tool."""
    return (
        set(arguments) == {"city", "days"}
        and arguments["city"] in ("Paris", "Rome")
        and arguments["days"] in (1, 2, 3)
    )
