"""vLLM 0.32.0: a stop string with half of a surrogate pair gets 500 and an empty message.

    python vllm_odd_values.py http://127.0.0.1:8000/v1

What must hold: values that cannot be used are refused with a reason (a prompt with such a half gets
400). Seen: status 500 and an empty message; as a stream, status 200 and an event with code 500. The
string cannot be encoded in UTF-8 where the request is handed to the engine (UnicodeEncodeError).
"""

import json
import sys
import urllib.error
import urllib.request
from typing import Any

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
HALF = "\ud83d"


def post(body: dict[str, Any]) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"}
    raw = json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE}/completions", raw, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main() -> int:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        model = json.load(answer)["data"][0]["id"]
    failed = 0
    for body in (
        {"prompt": HALF, "max_tokens": 2},
        {"prompt": "a", "max_tokens": 2, "stop": [HALF]},
        {"prompt": "a", "max_tokens": 2, "stop": [HALF], "stream": True},
    ):
        status, text = post({"model": model, **body})
        print(f"{json.dumps(body)}\n  {status} {text.strip()[:200]}")
        failed += status >= 500 or '"code": 500' in text
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
