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
    *plant("jax_engine/parallel/cuts.py", DIVIDED,
        ("heads + of_keys + own", "heads + own", "a device has its keys for values"),
        ("share = share_of_rows(count, size)", "share = count // size", "lost tokens"),
    ),
    *plant("jax_engine/parallel/cuts.py", DIVIDED,
        ("[part.values[place] for place in self.places[rank]]",
         "part.values[: len(self.places[rank])]", "all devices read the first experts"),
        ("rank * share, count - 1)", "rank * share, count)", "padding is behind the last row"),
    ),
    *plant("jax_engine/parallel/partition.py", DIVIDED,
        ("*_dealt(spec)]\n", "]\n", "experts are dealt to a number that does not divide them"),
        ('f"{prefix}.experts.shared")', 'f"{prefix}.experts")', "the wrong network is whole"),
        ("dealt_to=size, leaves=leaves", "dealt_to=size", "dealt experts are in no tree"),
    ),
    *plant("jax_engine/lora/adapted_leaves.py", SHARES,
        ("np.take(new[B], places, 1)", "new[B][:, : len(places)]", "all have the first rows"),
        ("np.take(new[A], places, 2)", "new[A][..., : len(places)]", "all have the first columns"),
        ("np.take(array, places, 0)", "array[: len(places)]", "all have the first experts"),
        ("gated=gated)", "gated=False)", "a gate beside other columns of up"),
    ),
    *plant("jax_engine/layers/experts.py", (*PROCESSES, "-kwhole_experts"),
        ("jnp.where((own >= 0) & (own < count), own, count)", "own % count",
         "a device computes its experts for tokens of others"),
    ),
    *plant("jax_engine/parallel/collectives.py", SAME_BITS,
        ("zip(parts[::2], parts[1::2]", "zip(parts[::2], parts[::2]", "a part is added twice"),
        ("ids // share == this_rank()", "ids // share >= 0", "all devices add their rows"),
    ),
    *plant("jax_engine/parallel/collectives.py", (*PROCESSES, "-kwhat_layers_say and olmo2"),
        ("every[:, ::copies, q", "every[:, :, q", "a norm counts a KV head twice"),
    ),
    *plant("jax_engine/parallel/collectives.py", SAME_BITS,
        ("take_place(_memory, seat.rank)", "take_place(_memory, 0)", "all are the first"),
    ),
    *plant("jax_engine/models/model_loader.py", (*PROCESSES, "-kwhat_layers_say and cohere"),
        ("OneOfMany(size, rank)", "OneOfMany(size, 0)", "one share"),
    ),
    *plant("jax_engine/worker/worker.py", ("tests/worker/test_worker.py",),
        ("(self._launched, step.moves)", "(self._launched,)", "other moves are not noticed"),
    ),
    *plant("cpu_kernels/meeting/gather.py", MEETING,
        ("if load(address + 8 * ABORTED) != 0:", "if False:", "they wait for ever"),
        ("if not _have_come(address, size, turn):", "if False:", "they do not wait"),
        ("target = call.every.address + other * total + start",
         "target = call.every.address + other * total", "all chunks are written over the first"),
        ("call.x.address + start, part)", "call.x.address, part)", "all chunks are the first"),
    ),
    *plant("cpu_kernels/meeting/place.py", MEETING,
        ("CHUNK * (2 * rank + (turn & 1))", "CHUNK * 2 * rank", "a buffer is written too early"),
    ),
    *plant("jax_engine/engine/request_router.py", ROUTER,
        ("load.pending[name] = left[engine]", "load.pending[name] = 0", "a queue costs nothing"),
        ("before = hash((before, *token", "before = hash((0, *token",
         "blocks forget what is before"),
        ("popitem(last=False)", "popitem()", "the newest blocks are given up"),
        ("list[int](), hash(salt)", "list[int](), 0", "prompts of other salts share blocks"),
    ),
    *plant("jax_engine/engine/calls.py", ENGINES,
        (" * blocks.enable_prefix_caching", " * 0", "requests with one prompt do not gather"),
    ),
    *plant("jax_engine/processes/placement.py", PLACES,
        ('{VARIABLE: "|".join(parts[its])}', "{}", "an engine reads the cores of all"),
        ("for core in each)", "for core in each[:1])", "a core a rank"),
    ),
]  # fmt: skip
