"""Bugs in how a model is divided between its layers, and in steps of several stages at once."""

from tests.mutation.planting import Mutant, plant

STAGES = ("--maxfail=1", "tests/parallel/test_stages.py", "-kvllm or variable or together or holds")
# The bug is in a file then, where other processes find it.
SAME_BITS = ("--maxfail=1", "tests/parallel/test_stages.py", "-ksame_bits and 2-1")
BY_NAME = ("--maxfail=1", "tests/parallel/test_stages.py", "-kby_name")
FLIGHT = ("tests/core/test_batches_in_flight.py", "tests/properties/test_stages_in_flight.py")
LINK = ("tests/processes/test_stage_link.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/parallel/partition.py", STAGES,
        ("first_layer=layers.start,", "first_layer=0,", "each stage reads the first layers"),
        ("chosen = slice(repetition, ", "chosen = slice(0, ", "the windows of other layers"),
        ("end - start if repeats == 1 else period", "period", "layers of the next stage, too"),
    ),
    *plant("jax_engine/models/model_loader.py", STAGES,
        (
            "layers_of_stages(config.spec.num_layers, num_stages)[number]",
            "range(2)",
            "the same layers",
        ),
    ),
    *plant("jax_engine/models/decoder.py", SAME_BITS,
        ("carry[:2], carry[2]", "(carry[1], carry[1]), carry[2]", "half of the stream is lost"),
    ),
    *plant("jax_engine/processes/runner_client.py", SAME_BITS,
        ("else found[-1]", "else found[0]", "the first stage answers, which draws nothing"),
    ),
    *plant("jax_engine/engine/startup/device_settings.py", BY_NAME,
        ('.name == "int8"', '.name == "int4"', "scales of a run that is not made"),
    ),
    *plant("jax_engine/core/scheduler.py", FLIGHT,
        ("self._advanced.popleft(), True", "self._advanced.pop(), True", "tokens of another step"),
        ("-(-active // total)", "active", "the first step takes all"),
        ("-(-waiting // free)", "waiting", "the first step admits all"),
    ),
    *plant("jax_engine/engine/pipeline.py", FLIGHT,
        ("            return self._num_stages\n", "            return 2\n", "a stage is idle"),
    ),
    *plant("jax_engine/processes/stage_link.py", LINK,
        (".view(np.uint8).data", ".astype(np.float32).view(np.uint8).data", "other bits"),
    ),
]  # fmt: skip
