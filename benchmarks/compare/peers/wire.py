"""A peer's half of the conversation with the driver: JSON lines over stdin and stdout.

    driver  -> argv[1]: {"model", "dtype", "max_model_len", "max_num_seqs", "kv_cache_bytes", ..}
    peer    -> {"loaded_s", "versions"} once the checkpoint is in memory
    driver  -> {"requests": [{"arrival_s", "prompt", "output_len", "n"}, ..]}
    peer    -> {"seconds", "requests": [{"first_s", "finish_s", "tokens": [[..], ..]}, ..]}

and so on until stdin ends. A failure is answered with {"error"}. Times are seconds after the start
of the pass. Only the standard library is used: interpreters of other projects run this file.
"""

import json
import os
import sys
import time
import traceback


class Clock:
    """Seconds since the start of a pass, and what happened to each request."""

    def __init__(self, requests):
        self.requests = requests
        self.start = time.monotonic()
        self.first = [None] * len(requests)
        self.finish = [None] * len(requests)
        self.tokens = [[[] for _ in range(one["n"])] for one in requests]

    def now(self):
        return time.monotonic() - self.start

    def add(self, request, sample, tokens, at=None):
        """New tokens of one sample, seen at `at` (now)."""
        if not tokens:
            return
        at = self.now() if at is None else at
        if self.first[request] is None:
            self.first[request] = at
        self.finish[request] = at
        self.tokens[request][sample] += [int(token) for token in tokens]

    def answer(self):
        rows = zip(self.first, self.finish, self.tokens, strict=True)
        return {
            "seconds": self.now(),
            "requests": [{"first_s": f, "finish_s": e, "tokens": t} for f, e, t in rows],
        }


def text_of(request):
    """A text of as many words as the prompt has tokens: see `benchmarks/encoders.py`."""
    return " ".join(f"w{token}" for token in request["prompt"])


def vector_as_tokens(vector):
    """The first numbers of an embedding, in thousandths, in the place of tokens."""
    return [round(1000 * float(number)) for number in vector[:8]]


def serve(load):
    """Answers passes until stdin ends.

    Args:
        load: settings -> (run, versions): `run(Clock)` carries out one pass.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not reach the driver

    def say(message):
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    started = time.monotonic()
    try:
        run, versions = load(json.loads(sys.argv[1]))
        say({"loaded_s": time.monotonic() - started, "versions": versions})
        for line in sys.stdin:
            clock = Clock(json.loads(line)["requests"])
            run(clock)
            say(clock.answer())
    except Exception as error:
        traceback.print_exc()
        say({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.flush()
    os._exit(0)  # the threads of some libraries never end
