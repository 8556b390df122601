"""The numbers of the exam's answers: from the oracle where it decides, else by their formula.

By question: all numbers that its model answer may name besides those that the question names.
"""

import math
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise

import numpy as np

from reference.admission import blocks_at_most
from reference.attention import merge_partials, softmax_attention
from reference.baselines import OrcaServer, power_of_two
from reference.blocks import BlockManager
from reference.cost_model import TABLE_1
from reference.kv_cache import slot_of
from reference.parameters import parameters
from reference.prefix_cache import PrefixCache
from reference.sampling import distribution
from reference.scheduler import Scheduler
from reference.simulator import TraceRequest
from scripts.tutorial.kv_sizes import MODELS
from scripts.tutorial.radix_tree import RadixTree
from scripts.tutorial.stepping import request, step

Numbers = Iterator[float]
ANSWERS: dict[int, Callable[[], Numbers]] = {}


def answer(number: int) -> Callable[[Callable[[], Numbers]], Callable[[], Numbers]]:
    def keep(found: Callable[[], Numbers]) -> Callable[[], Numbers]:
        ANSWERS[number] = found
        return found

    return keep


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@answer(1)
def bytes_of_a_token() -> Numbers:
    yield from (64 * 2 * 8 * 128 * 2, 2)


@answer(3)
def sequences_that_fit() -> Numbers:
    (token, _), pool = bytes_of_a_token(), 24 * 2**30
    yield from (2**30, token, pool / token, blocks := pool // (16 * int(token)))
    yield from (each := ceil(3000, 16), blocks // each)


@answer(4)
def pairs() -> Numbers:
    passes = range(10, 15)
    without = [n * (n + 1) // 2 for n in passes]
    yield from (*passes, *without, sum(without), without[0] + sum(range(11, 15)))


@answer(6)
def longest_context_to_be_compute_bound() -> Numbers:
    model, operations, bandwidth = MODELS["Llama-3-8B"], 989e12, 3.35e12
    assert model.layers * 2 * model.kv_heads * model.head_dim * 2 == 131_072
    seconds = 2 * model.parameters * 1e9 / operations
    yield from (9, round(1e6 * seconds, 1), round(seconds * bandwidth / 1e6, 1))
    yield int(seconds * bandwidth / 131_072)


@answer(8)
def holes() -> Numbers:
    memory = "A" * 5 + "B" * 5 + "C" * 6 + "D" * 4
    left = memory.replace("A", ".").replace("C", ".")
    found = [len(hole) for hole in left.replace("D", "B").split("B") if hole]
    yield from (sum(found), *found)
    manager = BlockManager(4, 5)
    for name, tokens in ((0, 5), (1, 4)):  # B and D
        assert manager.allocate_slots(name, [0] * tokens, 0, tokens) is not None
        yield len(manager.block_table(name))
    assert manager.num_free_gpu_blocks * 4 == 8
    yield from (5, manager.num_free_gpu_blocks)


@answer(9)
def orca() -> Numbers:
    for kind in ("oracle", "pow2", "max"):
        server = OrcaServer(8192, kind, max_model_len=2048)
        slots = server.slots_of(TraceRequest(0.0, prompt_len=100, output_len=60))
        yield from (slots, power_of_two(slots))
    yield power_of_two(60)


@answer(10)
def normalised_latency() -> Numbers:
    each = [(2 + 10 * 0.1) / 10, 100 * 0.05 / 100]
    yield from (1, 5, *each, sum(each) / 2)


@answer(11)
def latent() -> Numbers:
    short, long = 27 * (512 + 64) * 2, 27 * 16 * (192 + 128) * 2
    yield from (512 + 64, 192 + 128, short, long, round(long / short, 1))


@answer(13)
def slot() -> Numbers:
    yield from (13 // 8, 13 % 8, slot_of([4, 9, 2], 13, block_size=8))


@answer(16)
def online() -> Numbers:
    weights, values = [2.0, 1.0, 4.0], [3.0, 6.0, 9.0]
    largest = [*accumulate(weights, max)]
    for count in (1, 2, 3):
        seen = [w / largest[count - 1] for w in weights[:count]]
        yield from (sum(seen), sum(w * v for w, v in zip(seen, values, strict=False)))
    shown = softmax_attention(np.log(weights), np.array(values)[:, None])
    yield from (round(shown.item(), 3), sum(weights))


@answer(17)
def equation_4() -> Numbers:
    weights, values = np.array([2.0, 1, 1, 3, 1]), np.array([1.0, 2, 3, 4, 5])
    for keys in (5, 5 // 2 * 2):
        parts = weights[:keys] * values[:keys]
        shown = softmax_attention(np.log(weights[:keys]), values[:keys, None]).item()
        assert math.isclose(shown, parts.sum() / weights[:keys].sum())
        yield from (*parts, parts.sum(), weights[:keys].sum(), round(shown, 3), keys)
    yield from (math.ceil(5 / 2), 5 // 2)


@answer(18)
def merged() -> Numbers:
    found, lse = merge_partials(np.array([[3.0], [9.0]]), np.log([2.0, 6.0]))
    yield from (round(found.item(), 9), round(float(np.exp(lse)), 9))


@answer(23)
def empty_slots() -> Numbers:
    blocks = ceil(100, 16)
    yield from (blocks, 16 * blocks, 16 * blocks - 100)


@answer(24)
def two_tables() -> Numbers:
    manager, lengths = BlockManager(4, 8), {0: 7, 1: 5}
    for name, tokens in lengths.items():
        manager.allocate_slots(name, [0] * tokens, 0, tokens)
    for _ in range(2):
        for name in lengths:
            manager.allocate_slots(
                name, [0] * (lengths[name] + 1), lengths[name], lengths[name] + 1
            )
            lengths[name] += 1
    assert (manager.block_table(0), manager.block_table(1)) == ([7, 6, 3], [5, 4])
    assert lengths == {0: 9, 1: 7}
    yield from (8, *manager.block_table(0), *manager.block_table(1), *manager.gpu.free_blocks)


@answer(25)
def three_samples() -> Numbers:
    manager = BlockManager(4, 20)
    manager.allocate_slots(0, [0] * 10, 0, 10)
    yield 20 - manager.num_free_gpu_blocks
    manager.fork(0, 1)
    manager.fork(0, 2)
    copies = [manager.allocate_slots(name, [0] * 11, 10, 11) for name in range(3)]
    assert [len(one or []) for one in copies] == [1, 1, 0]
    tables = [manager.block_table(name) for name in range(3)]
    shared = set(tables[0]) & set(tables[1]) & set(tables[2])
    yield from (len(shared), 20 - manager.num_free_gpu_blocks)


@answer(26)
def two_beams() -> Numbers:
    manager = BlockManager(4, 4)
    manager.allocate_slots(0, [0] * 6, 0, 6)
    manager.fork(0, 1)
    for name in (1, 0):  # y writes first, so x stays in its block
        manager.allocate_slots(name, [0] * 7, 6, 7)
    assert (manager.block_table(0), manager.block_table(1)) == ([3, 2], [3, 1])
    manager.fork(0, 2)
    manager.free(1)
    copies = [manager.allocate_slots(name, [0] * 8, 7, 8) for name in (0, 2)]
    assert copies == [[(2, 1)], []]
    assert (manager.block_table(0), manager.block_table(2)) == ([3, 1], [3, 2])
    yield from (*manager.block_table(0), *manager.block_table(2), 4 - manager.num_free_gpu_blocks)


@answer(27)
def four_samples() -> Numbers:
    tokens = 161 + 338 - 1
    blocks, full = ceil(tokens, 16), 161 // 16
    limits = {"block_size": 16, "max_model_len": 2048}
    shared = blocks_at_most(prompt_len=161, max_tokens=338, num_samples=4, **limits)
    assert shared == full + 4 * (blocks - full)
    apart = 4 * blocks
    yield from (tokens, blocks, full, apart, blocks - full, shared)
    yield round(100 * (1 - shared / apart), 1)


@answer(33)
def steps() -> Numbers:
    outputs = (5, 1, 3, 3)
    scheduler = Scheduler(
        BlockManager(4, 40), max_num_seqs=2, max_num_batched_tokens=16, max_model_len=16
    )
    for name, output in zip("ABCD", outputs, strict=True):
        scheduler.add_group(request(name, 1, output))
    count = 0
    while scheduler.has_unfinished():
        step(scheduler)
        count += 1
    yield from (max(outputs[:2]) + max(outputs[2:]), count, sum(outputs[1:]))


def need(samples: int, watermark: int) -> Numbers:
    """The request of questions 34 and 35."""
    tokens = 6 + 11 - 1
    most = blocks_at_most(
        prompt_len=6, max_tokens=11, num_samples=samples, block_size=4, max_model_len=100
    )
    yield from (1, tokens, ceil(tokens, 4), 6 // 4, most, most + samples + watermark)


@answer(34)
def one_sample() -> Numbers:
    yield from (*need(1, 0), 0)


@answer(35)
def with_three_samples() -> Numbers:
    yield from need(3, 1)


@answer(38)
def hopeless() -> Numbers:
    tokens = 7 + 9 - 1
    yield from (tokens, ceil(tokens, 4), 3 * 4, 3 * 4 + 1)
    scheduler = Scheduler(
        BlockManager(4, 3),
        max_num_seqs=16,
        max_num_batched_tokens=16,
        max_model_len=16,
        scheduling="sosp",
        admission_rule=False,
    )
    scheduler.add_group(request("A", 7, 9))
    computed = [step(scheduler).num_batched_tokens for _ in range(20)]
    assert scheduler.has_unfinished() and computed[-5:] == [0] * 5


@answer(39)
def swapped_out() -> Numbers:
    model = TABLE_1["OPT-13B"]
    assert model.kv_bytes_per_token == 819_200
    blocks = 256 // 16
    yield from (blocks, 2, blocks * 40 * 2, 256 * model.kv_bytes_per_token, 256 * 40 * 2, 1)


@answer(42)
def watermarks() -> Numbers:
    for blocks in (650, 80):
        yield BlockManager(4, blocks, watermark=0.01).watermark_blocks


@answer(43)
def left_to_compute() -> Numbers:
    yield 1
    for tokens in (50, 48):
        cache = PrefixCache(16)
        for end in range(16, tokens + 1, 16):
            cache.offer(end, list(range(end)))
        hits = len(cache.lookup(list(range(tokens))))
        yield from (hits, 16 * hits, tokens - 16 * hits)


def chunks() -> list[int]:
    """A prompt of 24 beside three decodes, with a budget of 10."""
    scheduler = Scheduler(
        BlockManager(4, 60), max_num_seqs=8, max_num_batched_tokens=10, max_model_len=64
    )
    for name in "abc":
        scheduler.add_group(request(name, 2, 20))
    step(scheduler)
    scheduler.add_group(request("long", 24, 2))
    found: list[int] = []
    while sum(found) < 24:
        entries = step(scheduler).scheduled
        found += [e.num_tokens for e in entries if e.group.request_id == "long"]
    return found


@answer(44)
def the_chunks() -> Numbers:
    yield from chunks()


@answer(45)
def pairs_of_chunks() -> Numbers:
    ends = [0, *accumulate(chunks())]
    each = [b * (b + 1) // 2 - a * (a + 1) // 2 for a, b in pairwise(ends)]
    assert sum(each) == 24 * 25 // 2
    yield from (*each, sum(each), 24, 25, 2)


@answer(47)
def a_queue() -> Numbers:
    manager = BlockManager(4, 5, enable_prefix_caching=True, watermark=0.0)
    first, second = list(b"ABCDEFGHI"), list(b"ABCDXYZW")
    assert manager.allocate_slots(0, first, 0, 9) is not None
    assert manager.block_table(0) == [0, 1, 2]
    manager.free(0)
    assert manager.gpu.free_blocks == [3, 4, 2, 1, 0]
    hits = manager.cached_blocks(second)
    assert manager.allocate_slots(1, second, 4 * len(hits), 8, cached=hits) is not None
    assert (manager.block_table(1), manager.gpu.free_blocks) == ([0, 3], [4, 2, 1])
    assert manager.cached_blocks(first) == [0, 1]
    yield from range(5)


@answer(48)
def top_p() -> Numbers:
    weights = [10, 5, 3, 1, 1]
    shares = distribution(np.log(np.array(weights, float)), parameters(top_p=0.7))
    kept = [round(float(share), 3) for share in shares if share > 0]
    yield from (sum(weights), round(0.7 * sum(weights), 9), *kept)
    yield sum(weights[: len(kept)])


@answer(49)
def guesses() -> Numbers:
    each = [round(0.8**right, 3) for right in range(4)]
    yield from (*each, round(sum(each), 3))


@answer(50)
def tree_and_chain() -> Numbers:
    old = list(range(900))
    new = old[:500] + list(range(1000, 1200))
    tree, cache = RadixTree(), PrefixCache(32)
    tree.insert(old, [0] * len(old))
    for end in range(32, len(old), 32):
        cache.offer(end, old[:end])
    hits = len(cache.lookup(new))
    yield from (len(tree.lookup(new)), hits, 32 * hits)


@answer(53)
def intensity() -> Numbers:
    queries = 32 // 8
    yield from (queries, queries * 2, 2, queries * 2 / 2)


@answer(54)
def rungs() -> Numbers:
    contexts, width = (50, 10), 4
    slots, tokens = len(contexts) * width * 16, sum(contexts)
    yield from (1, 3, 4, 2, slots, slots * 2 * 3, tokens, tokens * 4, tokens * 2)


@answer(55)
def pieces() -> Numbers:
    yield from (2, 3 * 32 * 2, 1)


@answer(56)
def bits_of_a_weight() -> Numbers:
    bits = (128 * 4 + 16 + 16) / 128
    yield from (bits, round(100 * bits / 16, 1))


@answer(57)
def a_part_of_a_block() -> Numbers:
    kv_heads = 8 // 4
    yield from (kv_heads, 64 // 4, kv_heads * 2 * 16 * 128 * 2)


@answer(58)
def times() -> Numbers:
    first, last = 1.5 - 1.0, 5.5 - 1.5
    yield from (first, last, 40, last / 40, 5.5 - 1.0, round((5.5 - 1.0) / 41, 2))
