"""Bugs in how a model is divided between its layers, and in steps of several stages at once."""

from tests.mutation.planting import Mutant, plant

STAGES = ("--maxfail=1", "tests/parallel/test_stages.py", "-kvllm or variable or together or holds")
# The bug is in a file then, where other processes find it.
SAME_BITS = ("--maxfail=1", "tests/parallel/test_stages.py", "-ksame_bits and 2-1")
BY_NAME = ("--maxfail=1", "tests/parallel/test_stages.py", "-kby_name")
FLIGHT = ("tests/core/test_batches_in_flight.py", "tests/properties/test_stages_in_flight.py")
LINK = ("tests/processes/test_stage_link.py",)
RUNNER = ("tests/worker/test_stage_runner.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/parallel/partition.py",
        STAGES,
        ("counts[-2 - place] += 1", "counts[place] += 1", "the first stages have more"),
        ("or min(counts) < 1", "", "a stage without layers"),
        ("sum(counts) != num_layers", "False", "layers that nobody has"),
        ("first_layer=layers.start,", "first_layer=0,", "each stage reads the first layers"),
        ("chosen = slice(repetition, ", "chosen = slice(0, ", "the windows of other layers"),
        ("end - start if repeats == 1 else period", "period", "layers of the next stage, too"),
        ("first += group.num_layers", "pass", "layers of the second group are not found"),
    ),
    *plant(
        "jax_engine/models/model_loader.py",
        STAGES,
        (
            "layers_of_stages(config.spec.num_layers, num_stages)[number]",
            "range(2)",
            "the same layers",
        ),
    ),
    *plant(
        "jax_engine/models/decoder.py",
        STAGES,
        ("is_read = begins or (ends and spec.tied)", "is_read = True", "all have the embedding"),
    ),
    *plant(
        "jax_engine/models/decoder.py",
        SAME_BITS,
        ("carry[:2], carry[2]", "(carry[1], carry[1]), carry[2]", "half of the stream is lost"),
        ("one.start - spec.first_layer for", "one.start for", "layers beyond the cache"),
    ),
    *plant(
        "jax_engine/processes/runner_client.py",
        SAME_BITS,
        ("else found[-1]", "else found[0]", "the first stage answers, which draws nothing"),
    ),
    *plant(
        "jax_engine/engine/device_settings.py",
        BY_NAME,
        ("if config.enable_lora:", "if False:", "adapters are lost on the way"),
        ('.name == "int8"', '.name == "int4"', "scales of a run that is not made"),
        ('if backend not in (None, "mp"):', "if False:", "stages in one process"),
    ),
    *plant(
        "jax_engine/core/scheduler.py",
        FLIGHT,
        ("if num_samples and self._num_batches > 1:", "if False:", "a token nobody knows is fed"),
        ("self._advanced.popleft(), True", "self._advanced.pop(), True", "tokens of another step"),
        ("-(-active // total)", "active", "the first step takes all"),
        ("-(-waiting // free)", "waiting", "the first step admits all"),
    ),
    *plant(
        "jax_engine/core/unified.py",
        FLIGHT,
        ("if group.in_flight or not", "if not", "a token is drawn twice"),
        ("or len(out.scheduled) >= most", "", "one step has all sequences"),
        ("and len(state.waiting) > last", "", "one step admits all"),
    ),
    *plant(
        "jax_engine/engine/pipeline.py",
        FLIGHT,
        ("            return self._num_stages\n", "            return 2\n", "a stage is idle"),
        ("            self._scheduler.drop_step()\n", "", "results of a dropped step are awaited"),
    ),
    *plant(
        "jax_engine/processes/stage_link.py",
        LINK,
        ("if self._given_up():", "if False:", "it waits for ever"),
        ("if found == tag:", "if True:", "what was sent before a failure is taken"),
        ("if found > tag:", "if False:", "a step that was left out is not noticed"),
        (".view(np.uint8).data", ".astype(np.float32).view(np.uint8).data", "other bits"),
    ),
    *plant(
        "jax_engine/worker/stage_runner.py",
        RUNNER,
        ("if self._failure is not None and not always:", "if False:", "it goes on after a failure"),
        ("self._recovered += 1", "pass", "messages of before a failure count"),
        (
            "            ticket.sampled.result()\n",
            "            pass\n",
            "collected before it is drawn",
        ),
        ("self._failure, self._number = None, 0", "self._number = 0", "it never recovers"),
    ),
]
