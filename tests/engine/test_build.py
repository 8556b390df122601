"""From settings to the parts of an engine; the model, the worker and the device are stand-ins."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from jax_engine import ConfigError, EngineConfig, OutOfMemoryError
from jax_engine.config.engine_config import LONGEST
from jax_engine.engine.requests.prompt_embeds import EmbedsForm
from jax_engine.engine.startup import build, device_settings, engine_memory
from jax_engine.models.checkpoints.resolve import HubOptions
from jax_engine.sampling.sampling_inputs import ALL_STAGES
from jax_engine.step import Capabilities, PreemptionCosts
from jax_engine.worker.memory import MemoryProfile

BLOCK = 2**20  # bytes
COSTS = PreemptionCosts(0.5, 0.25)
PROFILE = MemoryProfile(2**33, 2**30, 2**28, 0, BLOCK, 100)
CONFIG = EngineConfig(
    model="org/model", revision="v1", download_dir="there", hf_token="secret",
    block_size=4, max_model_len=10, max_num_seqs=3, max_num_batched_tokens=16,
    swap_space=64 * 512 / 2**30,  # the model's blocks have 512 bytes
)  # fmt: skip
SOURCE = Path("downloaded")


class World:
    """Stands for all that `build` calls; `events` says in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[Any] = []
        self.worker: dict[str, Any] = {}
        self.steps: dict[str, Any] = {}
        self.profile = PROFILE
        self.loaded: tuple[Any, HubOptions] | None = None
        self.gguf: Path | None = None
        self.device = SimpleNamespace(
            in_host_memory=True, auto_dtype="float32", branches_wait=False
        )
        for name in ("open_model", "load_tokenizer", "Worker", "wait"):
            monkeypatch.setattr(build, name, getattr(self, f"_{name.lower()}"))
        for name in ("profile_memory", "CompiledSteps"):
            monkeypatch.setattr(engine_memory, name, getattr(self, f"_{name.lower()}"))
        for name in ("show_progress_lines", "enable_compilation_cache"):
            monkeypatch.setattr(build, name, lambda *args, name=name: self.events.append(name))
        for module in (build, device_settings, engine_memory):
            monkeypatch.setattr(module, "this_device", lambda: self.device)

    def _open_model(self, model: str, *, hub: HubOptions, **_: Any) -> Any:
        assert hub == HubOptions("v1", "there", "secret")
        spec = SimpleNamespace(
            num_layers=2, cached=(2, 1, 8), vocab_size=50, is_encoder=False, attentions=[]
        )
        config = SimpleNamespace(max_context_len=32, eos_token_ids=(5,), spec=spec)
        abstract = SimpleNamespace(
            config=config,
            all_layers=config,
            shares=None,
            num_bytes=2**28,
            source=SOURCE,
            head="a head",
            mesh=None,
        )
        return SimpleNamespace(abstract=abstract, gguf=self.gguf, load=lambda: "weights")

    def _load_tokenizer(self, source: Any, hub: HubOptions, mode: str) -> Any:
        assert mode == "auto"
        self.loaded = source, hub
        return SimpleNamespace(eos_token_ids=[6])

    def _profile_memory(self, **_: Any) -> MemoryProfile:
        return self.profile

    def _worker(self, _: Any, **options: Any) -> Any:
        self.worker = options
        self.events.append("worker")
        sizes = [options[name] for name in ("block_size", "num_blocks", "num_cpu_blocks")]
        return SimpleNamespace(
            capabilities=Capabilities(50, *sizes, table_width=3, look_ahead_tokens=64),
            prepare_first_step=lambda: self.events.append("first step"),
            set_weights=self.events.append,
            host_room=lambda blocks: len(blocks) == 1,
            measure_costs=lambda: COSTS,
        )

    def _compiledsteps(self, _: Any, **options: Any) -> Any:
        self.steps = options
        analysis = SimpleNamespace(temp_size_in_bytes=3 * 2**30)
        compiled = SimpleNamespace(memory_analysis=lambda: analysis)
        return SimpleNamespace(compile=lambda step, cache: compiled)

    def _wait(self, tasks: list[Any], seconds: float) -> None:
        self.events.append(("alone", len(tasks), seconds))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_the_parts(world: World) -> None:
    """Weights load alone at first; what can be prepared is, before they are there."""
    parts = build.build_engine(CONFIG)
    assert world.events == [
        "show_progress_lines", "enable_compilation_cache", ("alone", 1, build.ALONE_S), "worker",
        "first step", "weights",
    ]  # fmt: skip
    assert parts.eos_token_ids == {5, 6} and parts.max_model_len == 10
    assert (parts.model_source, parts.head) == (SOURCE, "a head")
    blocks = parts.scheduler.block_manager
    assert (blocks.block_size, blocks.num_gpu_blocks, blocks.num_cpu_blocks) == (4, 100, 64)
    assert (blocks.table_width, blocks.watermark_blocks) == (3, 1)
    assert (world.worker["num_blocks"], world.worker["num_cpu_blocks"]) == (100, 64)
    assert (world.worker["max_model_len"], world.worker["block_size"]) == (10, 4)


@pytest.mark.parametrize(
    ("changes", "in_host_memory", "there", "backend"),
    [
        ({"distributed_executor_backend": "ray"}, True, 1, "ray"),
        ({"distributed_executor_backend": "uni", "tensor_parallel_size": 2}, True, 1, "uni"),
        ({"pipeline_parallel_size": 2}, True, 8, "mp"),
        ({}, True, 0, "uni"),
        ({"tensor_parallel_size": 2}, False, 1, "uni"),
        ({"tensor_parallel_size": 2}, True, 1, "mp"),
        ({"tensor_parallel_size": 2}, True, 2, "uni"),
    ],
)
def test_where_the_model_runs(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    in_host_memory: bool,
    there: int,
    backend: str,
) -> None:
    """In another process where a CPU is too few devices here, or where it is asked for."""
    world.device.in_host_memory = in_host_memory
    monkeypatch.setattr(build, "num_there", lambda: there)
    assert build._backend(replace(CONFIG, **changes)) == backend


def test_no_process_is_told_what_cannot_be_written() -> None:
    for overrides in ({"a": lambda: 1}, len):
        config: Any = replace(CONFIG, hf_overrides=overrides)
        with pytest.raises(ConfigError, match="hf_overrides must be plain data"):
            build.settings_of_runners(config)


@pytest.mark.parametrize("enabled", [False, True])
def test_embeddings_are_taken_where_they_are_asked_for(world: World, enabled: bool) -> None:
    """In the model's width, and in the dtype of its activations."""
    parts = build.build_engine(replace(CONFIG, enable_prompt_embeds=enabled, dtype="bfloat16"))
    parts.model_config.spec.width = 7  # type: ignore[misc]
    assert parts.embeds == (EmbedsForm(7, "bfloat16") if enabled else None)


def test_a_sampler_of_its_own_takes_memory_beside_the_step(world: World) -> None:
    """Its temporaries, asked for everything, and the logits of two steps in flight."""
    prepared: list[Any] = []

    def prepare(*asked: Any) -> Any:
        prepared.append(asked)
        return SimpleNamespace(memory_analysis=lambda: SimpleNamespace(temp_size_in_bytes=1000))

    steps: Any = SimpleNamespace(sample=SimpleNamespace(prepare=prepare))
    assert engine_memory.sampler_bytes(steps, 8, 50) == 0 and prepared == []
    world.device.branches_wait = True
    assert engine_memory.sampler_bytes(steps, 8, 50) == 1000 + 2 * 8 * 50 * 4
    assert prepared == [(8, 50, ALL_STAGES)]


def test_the_runner_is_asked_for_room_and_costs_when_they_are_needed(world: World) -> None:
    config = replace(CONFIG, max_num_seqs=2, preemption_mode="auto")
    scheduler = build.build_engine(config).scheduler
    assert scheduler.preemption_costs is None
    assert scheduler._state._known_costs() == scheduler.preemption_costs == COSTS
    blocks = scheduler.block_manager
    for seq_id in range(2):
        blocks.allocate_slots(seq_id, [1] * 4, 0, 4)
    assert blocks.can_swap_out([0]) and not blocks.can_swap_out([0, 1])


def test_more_swap_space_than_can_be_asked_for(world: World) -> None:
    parts = build.build_engine(replace(CONFIG, swap_space=4.0))
    assert parts.scheduler.block_manager.num_cpu_blocks == world.worker["num_cpu_blocks"] == 200


def test_what_there_is_nothing_to_wait_for(world: World) -> None:
    """Random weights are there at once; on other devices pages are not the host's."""
    world.device.in_host_memory = False
    parts = build.build_engine(replace(CONFIG, load_format="dummy", skip_tokenizer_init=True))
    assert world.events[2:] == [("alone", 1, build.ALONE_S), "worker", "weights"]
    assert parts.tokenizer is None and parts.eos_token_ids == {5} and world.loaded is None


@pytest.mark.parametrize(
    ("changes", "source", "revision"),
    [
        ({}, SOURCE, "v1"),
        ({"tokenizer": "org/model"}, "org/model", "v1"),
        ({"tokenizer": "org/other"}, "org/other", None),
        ({"tokenizer": "org/other", "tokenizer_revision": "t2"}, "org/other", "t2"),
        ({"tokenizer_revision": "t2"}, SOURCE, "t2"),
    ],
)
def test_the_tokenizer_s_revision(
    world: World, changes: dict[str, Any], source: Any, revision: str | None
) -> None:
    """The model's, unless it is another repository's, or has one of its own."""
    build.build_engine(replace(CONFIG, **changes))
    assert world.loaded == (source, HubOptions(revision, "there", "secret"))


def test_a_gguf_file_has_its_tokenizer_in_it(world: World) -> None:
    world.gguf = Path("a.gguf")
    build.build_engine(CONFIG)
    assert world.loaded is not None and world.loaded[0] == Path("a.gguf")


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 100),
        ({"num_gpu_blocks_override": 7}, 7),
        ({"kv_cache_memory_bytes": 12800}, 50),  # of 256 bytes: 2 layers, K and V, 4 x 8 halves
        ({"kv_cache_memory_bytes": 12800, "num_gpu_blocks_override": 7}, 7),
    ],
)
def test_how_many_blocks(world: World, changes: dict[str, Any], count: int) -> None:
    config = replace(CONFIG, dtype="bfloat16", **changes)
    block = engine_memory.block_bytes(world._open_model("", hub=HubOptions("v1", "there", "secret"))
                              .abstract.config, 4, jnp.bfloat16)  # fmt: skip
    assert block == 256
    assert build.build_engine(config).memory.num_blocks == count


@pytest.mark.parametrize("step", [0, 2**30])
def test_too_few_blocks_for_the_longest_sequence(world: World, step: int) -> None:
    """The message says what the largest step takes, which is only then compiled to be known."""
    world.profile = replace(PROFILE, num_blocks=3, step=step)
    words = "step 3.00 GiB" if step == 0 else "step 1.00 GiB"
    with pytest.raises(OutOfMemoryError, match=f"needs 4 KV blocks.*{words}.*max_model_len=8"):
        build.build_engine(CONFIG)
    assert bool(world.steps) == (step == 0)
    if step == 0:
        assert (world.steps["table_width"], world.steps["block_size"]) == (3, 4)
    with pytest.raises(OutOfMemoryError, match="set num_gpu_blocks_override=4"):
        build.build_engine(replace(CONFIG, num_gpu_blocks_override=3))
    world.profile = replace(PROFILE, num_blocks=4)
    assert build.build_engine(CONFIG).memory.num_blocks == 4


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("auto", "bfloat16"), ("half", "float16"), ("float", "float32"), ("float16", "float16")],
)
def test_dtypes(world: World, name: str, dtype: str) -> None:
    """The device says what "auto" is."""
    world.device.auto_dtype = "bfloat16"
    assert device_settings.resolve_dtype(name) == jnp.dtype(dtype)


@pytest.mark.parametrize(
    ("cache_dtype", "name", "count"),
    [("auto", "float32", 32), ("fp8", "float8_e4m3fn", 128), ("int8", "int8", 128)],
)
def test_blocks_are_as_large_as_the_cache_s_dtype_makes_them(
    world: World, cache_dtype: Any, name: str, count: int
) -> None:
    """On the device and in swap space; nothing else of a step changes its dtype."""
    changes: dict[str, Any] = {"kv_cache_dtype": cache_dtype, "kv_cache_memory_bytes": 2**14}
    world.device.auto_dtype = "float32"
    open_model = world._open_model

    def opened(*given: Any, **options: Any) -> Any:
        files = open_model(*given, **options)
        files.abstract.config.spec.attentions = (SimpleNamespace(latent=None, chunk=None),)
        return files

    build.open_model = opened  # type: ignore[assignment]  # the fixture puts it back
    parts = build.build_engine(replace(CONFIG, **changes))
    assert parts.memory.num_blocks == world.worker["num_blocks"] == count
    assert world.worker["cache_dtype"] == name and world.worker["dtype"] == "float32"


def test_the_longest_length_that_fits_is_taken_where_none_is_given(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`max_model_len=-1`: what the model allows, or what the cache has room for."""
    config = replace(CONFIG, max_model_len=LONGEST)
    asked: list[int | None] = []
    error: OutOfMemoryError | None = None

    def built(config: EngineConfig, with_tokenizer: bool) -> Any:
        asked.append(config.max_model_len)
        if error is not None and config.max_model_len is None:
            raise error
        return f"{config.max_model_len}, {with_tokenizer}"

    monkeypatch.setattr(build, "_build_runners", built)
    assert build.build_runners(CONFIG, with_tokenizer=True) == "10, True"
    assert build.build_runners(config, with_tokenizer=True) == "None, True"
    error = OutOfMemoryError("so many fit", fitting=7)
    assert build.build_runners(config, with_tokenizer=False) == "7, False"
    error = OutOfMemoryError("nothing fits")
    with pytest.raises(OutOfMemoryError, match="nothing fits"):
        build.build_runners(config, with_tokenizer=False)
    assert asked == [10, None, None, 7, None]
