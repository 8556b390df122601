"""transformers 5.24.0: `transformers serve` answers 500 to what is wrong with a request.

What must hold: a body that cannot be used is refused with a status of 4xx and a reason. Seen: the
status 500 and "Internal Server Error" for values of a wrong type, for values out of range, for an
empty prompt, and for a body without one. The fields of completions are read without a check.

    transformers serve some-small-model
    python transformers_serve_wrong_values.py http://127.0.0.1:8000/v1
"""

import json
import sys
import urllib.error
import urllib.request

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
CHAT = {"messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}
BODIES = (
    ("/completions", {}),
    ("/completions", {"prompt": "", "max_tokens": 2}),
    ("/completions", {"prompt": "one two", "max_tokens": "many"}),
    ("/completions", {"prompt": "one two", "max_tokens": 2, "temperature": {}}),
    ("/chat/completions", CHAT | {"temperature": "hot"}),
    ("/chat/completions", CHAT | {"seed": 10**30}),
)


def model() -> str:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def post(path: str, body: dict) -> tuple[int, str]:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main() -> int:
    named = model()
    failed = 0
    for path, body in BODIES:
        status, text = post(path, {"model": named, **body} if body else body)
        print(f"{path} {json.dumps(body)}\n  {status} {text.strip()[:120]}")
        failed += status >= 500
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
