"""transformers 5.24.0: the streams of `transformers serve` never say [DONE].

What must hold: a stream of server-sent events ends with `data: [DONE]`, as OpenAI's does. Seen: the
streams of completions and of chats end behind the event that has the usage. A client that waits for
the last line takes a whole answer for one that was cut off.

    transformers serve some-small-model
    python transformers_serve_end_of_stream.py http://127.0.0.1:8000/v1

The streams are made in `completion.py` and `chat_completion.py` of `transformers/cli/serving`.
"""

import json
import sys
import urllib.request

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"


def model() -> str:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def last_event(path: str, body: dict) -> str:
    headers = {"Content-Type": "application/json"}
    raw = json.dumps({"model": model(), "max_tokens": 3, "stream": True, **body}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(BASE + path, raw, headers), timeout=60
    ) as answer:
        return [line for line in answer.read().decode().splitlines() if line.strip()][-1]


def main() -> int:
    asked = {
        "/chat/completions": {"messages": [{"role": "user", "content": "one two"}]},
        "/completions": {"prompt": "one two"},
    }
    ends = {path: last_event(path, body) for path, body in asked.items()}
    for path, event in ends.items():
        print(f"{path} ends with {event}")
    return int(any(event != "data: [DONE]" for event in ends.values()))


if __name__ == "__main__":
    sys.exit(main())
