"""A process that asks a server for /health until its input ends, for `server_burst`."""

import json
import os
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

EVERY_S = 0.02


def probe(url: str) -> None:
    """Asks for /health until its input ends; prints the seconds of each answer."""
    parts, waits = urlsplit(url), []
    connection = HTTPConnection(str(parts.hostname), parts.port)
    os.set_blocking(0, False)
    while _goes_on():
        started = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        waits.append(time.perf_counter() - started)
        time.sleep(EVERY_S)
    print(json.dumps(waits))


def _goes_on() -> bool:
    try:
        return bool(os.read(0, 1))
    except BlockingIOError:
        return True


if __name__ == "__main__":
    probe(sys.argv[1])
