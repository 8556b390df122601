"""Bugs in how several devices share a model, and in how a request finds an engine."""

from tests.mutation.planting import Mutant, plant

DIVIDED, MEETING = ("tests/parallel/test_divided.py",), ("tests/kernels/test_meeting.py",)
# The bug is in a file then, where other processes find it.
PROCESSES = ("--maxfail=1", "tests/parallel/test_processes.py")
SHARES = ("tests/lora/test_device_shares.py",)
ROUTER = ("tests/engine/test_request_router.py",)
ENGINES = ("tests/engine/test_data_parallel.py", "-knot real_processes")
PLACES = ("tests/processes/test_places.py",)
SAME_BITS = (*PROCESSES, "-ksame_bits and 2")

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/parallel/cuts.py",
        DIVIDED,
        ("heads + of_keys + own", "heads + own", "a device has its keys for values"),
        ("rank * count // size", "rank % count", "a query head has another KV head"),
        ("[one, one + network.width]", "[one, one]", "the gate's rows are those of up, too"),
        ("share = share_of_rows(count, size)", "share = count // size", "lost tokens"),
    ),
    *plant(
        "jax_engine/parallel/cuts.py",
        DIVIDED,
        (
            "[part.values[place] for place in self.places[rank]]",
            "part.values[: len(self.places[rank])]",
            "all devices read the first experts",
        ),
        ("rank * share, count - 1)", "rank * share, count)", "padding is behind the last row"),
        ("if whole_rows:\n", "if False:\n", "rows are cut that must be whole"),
        ("or not mlp.dealt or", "or", "all experts are dealt out"),
    ),
    *plant(
        "jax_engine/parallel/partition.py",
        DIVIDED,
        ("*_dealt(spec)]\n", "]\n", "experts are dealt to a number that does not divide them"),
        ('f"{prefix}.experts.shared")', 'f"{prefix}.experts")', "the wrong network is whole"),
        ("dealt_to=size, leaves=leaves", "dealt_to=size", "dealt experts are in no tree"),
    ),
    *plant(
        "jax_engine/engine/engine_memory.py",
        DIVIDED,
        ("times * model.num_bytes", "model.num_bytes", "one process alone has the draft model"),
    ),
    *plant(
        "jax_engine/lora/adapted_leaves.py",
        SHARES,
        ("np.take(new[B], places, 1)", "new[B][:, : len(places)]", "all have the first rows"),
        ("np.take(new[A], places, 2)", "new[A][..., : len(places)]", "all have the first columns"),
        ("own if rank == 0 else _without_biases(own)", "own", "each device adds a bias"),
        ("np.take(array, places, 0)", "array[: len(places)]", "all have the first experts"),
        ("gated=gated)", "gated=False)", "a gate beside other columns of up"),
        (' or leaf.kind == "embedding"', "", "a table of tokens is cut"),
    ),
    *plant(
        "jax_engine/layers/experts.py",
        (*PROCESSES, "-kwhole_experts"),
        (
            "jnp.where((own >= 0) & (own < count), own, count)",
            "own % count",
            "a device computes its experts for tokens of others",
        ),
        ("experts - this_rank() * count", "experts", "all devices have the first experts"),
        ("own * self.spec.leaves // self.spec.held", "own * 0", "experts of others are added"),
    ),
    *plant(
        "jax_engine/models/leaves.py",
        (*PROCESSES, "-kwhole_rows"),
        (
            "if isinstance(coded, W8A8):\n        return True",
            "if isinstance(coded, W8A8):\n        return False",
            "each device rounds x by the largest number of its own part",
        ),
    ),
    *plant(
        "jax_engine/parallel/partition.py",
        DIVIDED,
        ("heads and all(count", "heads or all(count", "a network that does not divide is cut"),
        ("max(1, spec.num_kv_heads // size)", "spec.num_kv_heads // size", "no KV heads"),
        ("one.num_heads % size == 0 and", "True and", "query heads that do not divide are cut"),
    ),
    *plant(
        "jax_engine/parallel/collectives.py",
        SAME_BITS,
        ("zip(parts[::2], parts[1::2]", "zip(parts[::2], parts[::2]", "a part is added twice"),
        ("ids // share == this_rank()", "ids // share >= 0", "all devices add their rows"),
    ),
    *plant(
        "jax_engine/parallel/collectives.py",
        (*PROCESSES, "-kwhat_layers_say and olmo2"),
        ("every[:, ::copies, q", "every[:, :, q", "a norm counts a KV head twice"),
        ("this_rank() // copies * size", "this_rank() * size", "a device has no KV head"),
    ),
    *plant(
        "jax_engine/parallel/collectives.py",
        SAME_BITS,
        ("take_place(_memory, seat.rank)", "take_place(_memory, 0)", "all are the first"),
    ),
    *plant(
        "jax_engine/models/model_loader.py",
        (*PROCESSES, "-kwhat_layers_say and cohere"),
        (
            "OneOfMany(size, rank)",
            "OneOfMany(size, 0)",
            "one share",
        ),
    ),
    *plant(
        "jax_engine/worker/worker.py",
        ("tests/worker/test_worker.py",),
        ("self._launched += 1", "pass", "a step that is carried out twice is not noticed"),
        ("digest.update(packed)", "pass", "another plan is not noticed"),
        ("(self._launched, step.moves)", "(self._launched,)", "other moves are not noticed"),
        ("whole.update(np.ascontiguousarray(tokens))", "pass", "other tokens are not noticed"),
    ),
    *plant(
        "cpu_kernels/meeting/gather.py",
        MEETING,
        ("if load(address + 8 * ABORTED) != 0:", "if False:", "they wait for ever"),
        ("if not _have_come(address, size, turn):", "if False:", "they do not wait"),
        (
            "target = call.every.address + other * total + start",
            "target = call.every.address + other * total",
            "all chunks are written over the first",
        ),
        ("call.x.address + start, part)", "call.x.address, part)", "all chunks are the first"),
    ),
    *plant(
        "cpu_kernels/meeting/place.py",
        MEETING,
        ("CHUNK * (2 * rank + (turn & 1))", "CHUNK * 2 * rank", "a buffer is written too early"),
    ),
    *plant(
        "jax_engine/engine/request_router.py",
        ROUTER,
        ("costs.index(min(costs))", "costs.index(max(costs))", "the busiest engine is chosen"),
        ("RUNNING_TOKENS * self.num_open", "0", "requests that run cost nothing"),
        ("load.pending[name] = left[engine]", "load.pending[name] = 0", "a queue costs nothing"),
        ("load.num_open -= 1", "pass", "requests that have ended cost something"),
        (
            "before = hash((before, *token",
            "before = hash((0, *token",
            "blocks forget what is before",
        ),
        ("self._remember(load, blocks)", "pass", "no prefix is known"),
        ("popitem(last=False)", "popitem()", "the newest blocks are given up"),
        ("list[int](), hash(salt)", "list[int](), 0", "prompts of other salts share blocks"),
    ),
    *plant(
        "jax_engine/engine/calls.py",
        ENGINES,
        ("self._router.forget_prefixes()", "pass", "emptied caches are counted on"),
        (" * blocks.enable_prefix_caching", " * 0", "requests with one prompt do not gather"),
        ("self._router.end(request_id)", "pass", "the router keeps who has ended"),
    ),
    *plant(
        "jax_engine/engine/calls.py",
        ENGINES,
        ("request.order = first + i", "request.order = 0", "all unseeded requests draw alike"),
        ("request.order = first + i", "pass", "seeds are those of another number of engines"),
        ("                self._routes.end(call.request_ids)", "                pass",
         "a request that came to no engine costs one something"),
        ("            if part:\n", "            if False:\n", "only engine 0 gets requests"),
        ("self._routes.end(request_ids)", "pass", "requests of a failed step cost something"),
        ("problem is not None and", "False and", "requests go to an engine that has ended"),
        ("        return all(emptied)", "        return any(emptied)", "half are emptied"),
    ),
    *plant(
        "jax_engine/processes/placement.py",
        PLACES,
        ('{VARIABLE: "|".join(parts[its])}', "{}", "an engine reads the cores of all"),
        ("for core in each)", "for core in each[:1])", "a core a rank"),
    ),
]  # fmt: skip
