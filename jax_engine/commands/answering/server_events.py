"""Reads server-sent events."""

from collections.abc import Iterable, Iterator


def event_data(lines: Iterable[bytes]) -> Iterator[str]:
    """The data of each event, up to "[DONE]"."""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        name, _, value = line.partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif not line and data:  # an empty line ends an event
            whole, data = "\n".join(data), []
            if whole == "[DONE]":
                return
            yield whole
