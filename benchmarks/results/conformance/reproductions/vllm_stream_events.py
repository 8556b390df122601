"""vLLM 0.32.0: a stream with an echo, log-probabilities and two samples fails in its middle.

    python vllm_stream_events.py http://127.0.0.1:8000/v1

What must hold: a stream that has begun with status 200 ends each of its choices. Seen: an event
`{"error": {"message": "60", "type": "InternalServerError", ...}}`, where 60 is the prompt's first
token, and a KeyError in `_create_completion_logprobs`. It depends on which sample's first token is
sent with the prompt's log-probabilities, so the request is sent until it is seen, 50 times at most.
"""

import json
import sys
import urllib.request

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
TIMES = 50


def model() -> str:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def events(body: dict) -> list[dict]:
    """The events of one stream, without the last one, which says that it is done."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{BASE}/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        lines = [line.decode().removeprefix("data: ").strip() for line in answer]
    return [json.loads(line) for line in lines if line.startswith("{")]


def main() -> int:
    body = {
        "model": model(), "prompt": [60, 38, 20, 13], "max_tokens": 2, "n": 2, "echo": True,
        "logprobs": 1, "stream": True, "temperature": 1.0,
    }  # fmt: skip
    print(json.dumps(body))
    for turn in range(1, TIMES + 1):
        failed = [event for event in events(body) if "error" in event]
        if failed:
            print(f"request {turn} of {TIMES}: {failed[0]}")
            return 1
    print(f"{TIMES} streams ended as they should")
    return 0


if __name__ == "__main__":
    sys.exit(main())
