"""transformers 5.24.0: `transformers serve` leaves a stop string in the text.

What must hold (I50): a text ends before its first stop string, which is no part of it. Seen: the
text has the stop string, and the rest of the token in which that ends. `stop` is handed to
`generate` as `stop_strings`, which ends behind it, and nothing cuts the text afterwards.

    transformers serve some-small-model
    python transformers_serve_stop_strings.py http://127.0.0.1:8000/v1

The program asks for a text, and asks again with a part of it as the stop string.
"""

import json
import sys
import urllib.error
import urllib.request

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"


def model() -> str:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def text(path: str, **body) -> str:
    headers = {"Content-Type": "application/json"}
    raw = json.dumps({"model": model(), "max_tokens": 8, "temperature": 0, **body}).encode()
    with urllib.request.urlopen(
        urllib.request.Request(BASE + path, raw, headers), timeout=60
    ) as answer:
        choice = json.load(answer)["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def main() -> int:
    asked = {
        "/chat/completions": {"messages": [{"role": "user", "content": "one"}]},
        "/completions": {"prompt": "one"},
    }
    failed = 0
    for path, body in asked.items():
        whole = text(path, **body)
        stop = whole[1:3]
        try:
            cut = text(path, stop=[stop], **body)
        except urllib.error.HTTPError as error:
            print(
                f"{path}: {whole!r}; stop {stop!r} is refused: {error.code} {error.read()[:200]!r}"
            )
            continue
        print(f"{path}: {whole!r}; with the stop string {stop!r} {cut!r}, should be {whole[:1]!r}")
        failed += stop in cut
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
