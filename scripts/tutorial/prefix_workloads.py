"""The shapes of the benchmarks of SGLang's paper, and how much of their prompts two caches find.

A workload is a list of *programs*: prompts and outputs in their order, each a list of token ids.
Tokens are drawn by chance: only what is equal at the beginning of two prompts matters. How long
the parts are is ours, within the limits that the benchmarks' own scripts give where they give any.
"""

import random
from collections.abc import Callable, Iterator
from itertools import product, zip_longest

from reference.blocks import BlockManager
from scripts.tutorial.radix_tree import RadixTree

Tokens = list[int]
Program = list[tuple[Tokens, Tokens]]  # prompt and output of each request
Text = Callable[[int, int], Tokens]  # so many tokens, from the least to the most

BLOCK_SIZE = 16


def mmlu(text: Text) -> Iterator[Program]:
    """Eight subjects with five worked examples each, fifteen questions on each; one letter."""
    for _ in range(8):
        examples = text(300, 700)
        for _ in range(15):
            yield [(examples + text(60, 120), text(1, 1))]


def hellaswag(text: Text) -> Iterator[Program]:
    """Twenty examples for all; twenty questions, and four endings of each to be scored."""
    examples = text(1200, 1200)
    for _ in range(20):
        question = examples + text(40, 80)
        yield [(question + text(15, 35), []) for _ in range(4)]


def react(text: Text) -> Iterator[Program]:
    """Instructions with examples; fifteen questions, each with five steps of a recorded trace.

    As in the benchmark the trace goes on with its own thought, so outputs are not read again.
    """
    instructions = text(1500, 1500)
    for _ in range(15):
        history, steps = instructions + text(20, 40), []
        for _ in range(5):
            steps.append((history, text(40, 80)))
            history = history + text(80, 160)  # thought, action, observation
        yield steps


def generative_agents(text: Text) -> Iterator[Program]:
    """Five kinds of questions to an agent, each with its own template; a hundred events."""
    templates = [text(100, 300) for _ in range(5)]
    for number in range(100):
        yield [(templates[number % 5] + text(40, 100), text(4, 30))]


def tree_of_thought(text: Text) -> Iterator[Program]:
    """Eight problems; plan, solve, reflect, answer, with two branches at each."""
    instructions = [text(20, 60) for _ in range(4)]
    for _ in range(8):
        states, program = [text(60, 120)], []
        for instruction in instructions:
            branches = []
            for state, _ in product(states, range(2)):
                prompt, output = state + instruction, text(60, 120)
                program.append((prompt, output))
                branches.append(prompt + output)
            states = branches
        yield program


def llm_judge(text: Text) -> Iterator[Program]:
    """Twelve essays, each judged in six respects, then as a whole."""
    system, respects = text(30, 30), [text(60, 100) for _ in range(6)]
    for _ in range(12):
        essay = system + text(500, 1000)
        judged = [(essay + respect, text(60, 120)) for respect in respects]
        whole = essay + [token for _, output in judged for token in output]
        yield [*judged, (whole, text(2, 2))]


def json_decoding(text: Text) -> Iterator[Program]:
    """Twenty documents, and five fields of each, one after the other."""
    system = text(15, 15)
    for _ in range(20):
        so_far, fields = system + text(300, 600), []
        for _ in range(5):
            so_far = so_far + text(3, 5)  # the field's name
            value = text(4, 8)
            fields.append((so_far, value))
            so_far = so_far + value
        yield fields


def chat(text: Text, answer: tuple[int, int]) -> Iterator[Program]:
    """Twenty conversations of four turns."""
    for _ in range(20):
        so_far, turns = list[int](), []
        for _ in range(4):
            so_far = so_far + text(256, 512)
            said = text(*answer)
            turns.append((so_far, said))
            so_far = so_far + said
        yield turns


WORKLOADS: dict[str, Callable[[Text], Iterator[Program]]] = {
    "MMLU, 5-shot": mmlu,
    "HellaSwag, 20-shot": hellaswag,
    "ReAct agents": react,
    "generative agents": generative_agents,
    "tree of thought": tree_of_thought,
    "LLM judge": llm_judge,
    "JSON decoding": json_decoding,
    "chat, short answers": lambda text: chat(text, (4, 8)),
    "chat, long answers": lambda text: chat(text, (256, 512)),
}


def programs(name: str, seed: int = 0) -> list[Program]:
    choose = random.Random(seed)

    def text(least: int, most: int) -> Tokens:
        return choose.choices(range(50_000), k=choose.randint(least, most))

    return list(WORKLOADS[name](text))


def one_by_one(work: list[Program]) -> Program:
    """Each program to its end, in the order of the benchmark."""
    return [request for program in work for request in program]


def side_by_side(work: list[Program], seed: int = 1) -> Program:
    """All programs' first requests, in any order, then all second ones, and so on."""
    mixed = random.Random(seed).sample(work, len(work))
    rounds = zip_longest(*mixed)
    return [request for row in rounds for request in row if request is not None]


def tree_finds(requests: Program, capacity: int) -> list[int]:
    """Tokens of each prompt that a radix tree of so many slots finds."""
    tree, found = RadixTree(), []
    for prompt, output in requests:
        found.append(len(tree.lookup(prompt)))
        tree.insert(prompt + output, [0] * len(prompt + output))
        while sum(len(node.slots) for node in tree.nodes()) > capacity:
            tree.evict()
    return found


def chain_finds(requests: Program, capacity: int) -> list[int]:
    """The same of the oracle's block manager, in blocks of 16."""
    blocks = capacity // BLOCK_SIZE
    manager = BlockManager(BLOCK_SIZE, blocks, enable_prefix_caching=True, watermark=0.0)
    found = []
    for number, (prompt, output) in enumerate(requests):
        hits, tokens = manager.cached_blocks(prompt), prompt + output
        start = BLOCK_SIZE * len(hits)
        copies = manager.allocate_slots(number, tokens, start, len(tokens), cached=hits)
        assert copies is not None, "the pool is too small for one request"
        manager.free(number)
        found.append(start)
    return found


def share(found: list[int], requests: Program) -> float:
    """Per cent of the prompts' tokens."""
    return 100 * sum(found) / sum(len(prompt) for prompt, _ in requests)


def room_for_all(requests: Program) -> int:
    """Slots with which nothing is ever evicted: blocks for what no earlier request has."""
    everything = sum(len(prompt) + len(output) for prompt, output in requests)
    found, slots = tree_finds(requests, everything), 0
    for (prompt, output), hit in zip(requests, found, strict=True):
        new = len(prompt) + len(output) - hit // BLOCK_SIZE * BLOCK_SIZE
        slots += -(-new // BLOCK_SIZE) * BLOCK_SIZE
    return slots
