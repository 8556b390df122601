"""One request on its way through the system, stop by stop, with the data as it is at each.

The scheduler, the block manager and the messages are the real ones. Only the model is not run: its
token is the one that SmolLM2 draws (a test holds that, and the token ids).
"""

import html
import json
from dataclasses import asdict, dataclass

from jax_engine.engine.engine_core_output import EngineCoreOutput, SequenceOutput
from jax_engine.serving.messages import Add, Outputs, encode
from reference.blocks import BlockManager
from reference.scheduler import Scheduler
from scripts.tutorial.stepping import request

TEXT, NEXT = "The capital of France is", " Paris"
TOKENS, TOKEN = [504, 3575, 282, 4649, 314], 7042
BLOCK_SIZE = 4

BOXES = {
    "client": ("Client", "curl, openai, a page", "serving.md", "outside"),
    "server": ("API server", "AsyncLLM, tokenizer", "tutorial/processes.md", "API process"),
    "blocks": ("BlockManager", "block tables", "tutorial/block-manager.md", "engine process"),
    "scheduler": ("Scheduler", "who computes", "tutorial/scheduler.md", "engine process"),
    "engine": ("LLMEngine", "the loop", "tutorial/serving.md", "engine process"),
    "worker": ("Worker", "the runner", "tutorial/jax-engine.md", "engine process"),
    "cache": ("KV cache", "blocks on the device", "tutorial/blocks-by-hand.md", "device"),
    "model": ("Model", "layers, attention", "tutorial/attention.md", "device"),
    "sampler": ("Sampler", "draws a token", "tutorial/sampling.md", "device"),
}
"""Name: title, what it is, page, and the process or place that it is in. Neighbours talk."""

LINKS = (
    ("client", "server"),
    ("server", "engine"),
    ("engine", "scheduler"),
    ("scheduler", "blocks"),
    ("engine", "worker"),
    ("worker", "model"),
    ("model", "cache"),
    ("model", "sampler"),
)
"""Who exchanges something with whom: an arrow each."""

IN_TOKENS = "The API process makes tokens of it. The engine never sees text."
BY_IPC = "One msgpack message over a private socket, from process to process."
AS_DATA = "Rows, block tables, blocks to move first: plain data. One compiled program runs it."
TO_SLOTS = "Each layer writes to slots: block number times block size, plus offset."


@dataclass(frozen=True)
class Stop:
    """Where the request is, what happens there, and the data that goes on from there."""

    box: str
    title: str
    says: str
    data: str


def stops() -> list[Stop]:
    """In order."""
    manager = BlockManager(BLOCK_SIZE, 8)
    scheduler = Scheduler(manager, max_num_seqs=4, max_num_batched_tokens=16, max_model_len=32)
    group = request("r", len(TOKENS), 1)
    group.leader.token_ids[:] = TOKENS
    scheduler.add_group(group)
    (entry,) = scheduler.schedule().scheduled
    table = manager.block_table(entry.seq.seq_id)
    slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(len(TOKENS))]
    add = Add("r", TOKENS, {"max_tokens": 1, "temperature": 0.0}, False, 0.0)
    new = [SequenceOutput(0, [TOKEN], finish_reason="length")]
    message = Outputs([EngineCoreOutput("r", new, True, 0)])
    scheduler.update({entry.seq.seq_id: [TOKEN]})
    body = f'{{"prompt": "{TEXT}", "max_tokens": 1}}'
    event = f'{{"choices": [{{"text": "{NEXT}", "finish_reason": "length"}}]}}'
    sent, said = len(encode(add)), len(encode(message))
    rows = (
        ("client", "A request arrives", "Text comes in over HTTP.", f"POST /v1/completions {body}"),
        ("server", "Tokenised", IN_TOKENS, f"{TOKENS}"),
        ("server", "Sent", BY_IPC, f"Add('r', token_ids, {add.params}), {sent} bytes"),
        ("engine", "Queued", "The engine's loop takes messages between two steps.", "waiting: r"),
        ("scheduler", "Admitted", "It fits into the step and into memory: a row of tokens.",
         f"Row(start={entry.start}, tokens={TOKENS}), Samples([{len(TOKENS) - 1}], [0])"),
        ("blocks", "Given blocks", f"Five tokens need two blocks of {BLOCK_SIZE}, from anywhere.",
         f"block table: {table}"),
        ("worker", "Run", AS_DATA, "Step(rows, samples, block_tables, moves)"),
        ("cache", "Keys and values written", TO_SLOTS, f"slots: {slots}"),
        ("model", "Attended", "Each token attends to those before it, block by block.",
         "logits [samples, V] = [1, 49152]"),
        ("sampler", "Sampled", "On the device, too: only tokens come back.", f"token {TOKEN}"),
        ("engine", "Reported", "What is new in each request, in one message a step.",
         f"EngineCoreOutput('r', [SequenceOutput(token_ids=[{TOKEN}])], finished), {said} bytes"),
        ("server", "Detokenised", "Bytes that are a whole character become text.", f"{NEXT!r}"),
        ("client", "Streamed", "An event of the stream, and the end.", f"data: {event}"),
        ("blocks", "Freed", "Its blocks are free again in the step that ended it.",
         f"{manager.num_free_gpu_blocks} of {manager.num_gpu_blocks} blocks free"),
    )  # fmt: skip
    return [Stop(*row) for row in rows]


def diagram(small: bool, root: str) -> str:
    """For docs/javascripts/journey.js: boxes by process, and the stops.

    Args:
        small: it moves by itself, and shows no data.
        root: the way from the page to the top of the site.
    """
    places = dict.fromkeys(place for *_, place in BOXES.values())
    parts = []
    for place in places:
        boxes = [
            f'<a class="journey-box" data-box="{name}" href="{root}{page.removesuffix(".md")}/">'
            f"<b>{title}</b><span>{what}</span></a>"
            for name, (title, what, page, where) in BOXES.items()
            if where == place
        ]
        parts.append(
            f'<div class="journey-place"><span class="journey-where">{place}</span>'
            f"{''.join(boxes)}</div>"
        )
    data = html.escape(json.dumps([asdict(stop) for stop in stops()]))
    links = html.escape(json.dumps(LINKS))
    kind = "journey journey--small" if small else "journey"
    note = "<noscript>With JavaScript, a request moves through it.</noscript>"
    return (
        f'<div class="{kind}" data-stops="{data}" markdown="0">'
        f'<div class="journey-map" data-links="{links}">{"".join(parts)}</div>{note}</div>'
    )
