"""transformers 5.24.0: a prompt beyond the model's positions holds up everybody else.

What must hold: a prompt that is longer than the model's context is refused, and while a long one is
computed others are answered in bounded time. Seen: no length is refused. The prompt is computed at
once, in the one thread that generates, and nobody else is answered meanwhile.

    transformers serve some-small-model
    python transformers_serve_long_prompt.py http://127.0.0.1:8000/v1

The prompt has 180,000 characters. Take more for a model with a context of more than 30,000 tokens.
"""

import json
import sys
import threading
import time
import urllib.error
import urllib.request

BASE = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1"
PATIENCE = 60


def model() -> str:
    with urllib.request.urlopen(f"{BASE}/models", timeout=60) as answer:
        return str(json.load(answer)["data"][0]["id"])


def post(body: dict, patience: float) -> str:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{BASE}/completions", json.dumps(body).encode(), headers)
    start = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=patience) as answer:
            said = f"{answer.status}"
    except urllib.error.HTTPError as error:
        said = f"{error.code}"
    except OSError as error:
        said = f"no answer ({error})"
    return f"{said} after {time.monotonic() - start:.1f} s"


def main() -> int:
    short = {"model": model(), "prompt": "one", "max_tokens": 1}
    long = short | {"prompt": "hello " * 30_000}
    print(f"the short one alone: {post(short, PATIENCE)}")
    other = threading.Thread(target=post, args=(long, 10 * PATIENCE), daemon=True)
    other.start()
    time.sleep(2)
    said = post(short, PATIENCE)
    print(f"the short one beside a long one: {said}")
    return int(said.startswith("no answer"))


if __name__ == "__main__":
    sys.exit(main())
