"""The stand-in for vLLM's modules: what is there is ours, and what is not says what it needs."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from types import ModuleType

import pytest

import jax_engine
from jax_engine.compat import vllm
from jax_engine.compat.names import MISSING, SAME, explanation, where
from jax_engine.compat.stand_ins import EngineArgs, FlexibleArgumentParser


@pytest.fixture(autouse=True)
def stand_in() -> Iterator[None]:
    vllm.install()
    yield
    vllm.uninstall()


@pytest.mark.parametrize(("module", "names"), sorted({(row[0], row[2]) for row in SAME}))
def test_every_name_of_the_table_is_there(module: str, names: str) -> None:
    for name in names.split():
        assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize("name", MISSING)
def test_nothing_is_both_there_and_missing(name: str) -> None:
    assert where(name) is None


def test_a_name_is_where_vllm_has_it_and_not_in_its_other_modules() -> None:
    assert where("vllm.LLM") and where("vllm.config.LLM") is None


def test_names_are_this_engine() -> None:
    from vllm import LLM, AsyncLLMEngine, SamplingParams  # type: ignore[import-not-found]
    from vllm.sampling_params import RequestOutputKind  # type: ignore[import-not-found]
    from vllm.v1.engine.async_llm import AsyncLLM  # type: ignore[import-not-found]

    assert AsyncLLM is AsyncLLMEngine is jax_engine.AsyncLLM is jax_engine.AsyncLLMEngine
    assert issubclass(LLM, jax_engine.LLM) and LLM is vllm.LLM
    assert SamplingParams is jax_engine.SamplingParams
    assert RequestOutputKind is jax_engine.RequestOutputKind


def test_versions_are_those_of_the_interface() -> None:
    import vllm as imported

    assert imported.__version__ == version("vllm") == vllm.VERSION
    with pytest.raises(PackageNotFoundError):
        version("no-such-distribution-as-this")
    assert distribution("vllm").files is None and not distribution("vllm").entry_points


def test_a_platform_is_one_of_those_that_jax_has() -> None:
    from vllm.platforms import current_platform as here  # type: ignore[import-not-found]

    assert [here.is_cuda(), here.is_cpu(), here.is_tpu()].count(True) == 1
    assert not here.is_rocm() and not here.is_xpu()


@pytest.mark.parametrize(
    ("statement", "need"),
    [
        ("from vllm.lora.layers import BaseLayerWithLoRA", "LoRA adapters"),
        ("import vllm.multimodal.utils", "text models only"),
        ("import vllm.distributed.kv_transfer.kv_connector.v1", "code of connectors"),
        ("from vllm import NoSuchThing", "vllm.NoSuchThing is not in jax-engine"),
    ],
)
def test_what_is_not_there_says_what_it_needs(statement: str, need: str) -> None:
    with pytest.raises(ImportError, match=need):
        exec(statement)


def test_an_attribute_that_is_not_there_is_no_attribute() -> None:
    assert not hasattr(import_module("vllm"), "NoSuchThing")
    with pytest.raises(AttributeError, match="jax-engine: it needs images"):
        _ = vllm.multimodal


def test_the_longest_beginning_explains() -> None:
    assert "handed over" in explanation("vllm.config.WeightTransferConfig")
    assert "own configuration" in explanation("vllm.config.NoSuchConfig")


def test_taken_away_nothing_is_left() -> None:
    import_module("vllm.sampling_params")
    vllm.uninstall()
    assert not [name for name in sys.modules if name.partition(".")[0] == "vllm"]
    with pytest.raises(PackageNotFoundError):
        version("vllm")


def test_an_installed_vllm_is_not_shadowed_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm.uninstall()
    (tmp_path / "vllm.py").write_text("LLM = 'the real one'")
    monkeypatch.syspath_prepend(tmp_path)
    assert not vllm.install()
    assert import_module("vllm").LLM == "the real one"
    assert vllm.install(replace=True)
    assert import_module("vllm").LLM is vllm.LLM


def test_a_program_runs_unchanged(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from beside import WORD\n"
        "from vllm import SamplingParams\n"
        "from jax_engine.compat import vllm\n"
        "if __name__ == '__main__':\n"
        "    print(WORD, sys.argv[1:], SamplingParams(max_tokens=3).max_tokens)\n"
    )
    command = [sys.executable, "-m", "jax_engine.compat.vllm", str(program), "--n", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("beside ['--n', '1'] 3\n", "")


def test_the_server_has_its_name_too() -> None:
    command = [sys.executable, "-m", "jax_engine.compat.vllm"]
    command += ["-m", "vllm.entrypoints.openai.api_server", "--model", "x", "--port", "high"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "jax-engine serve" not in done.stdout
    assert "serve: error: argument --port: invalid int value: 'high'" in done.stderr


@pytest.mark.parametrize("added", ["--max-tokens", "--max_tokens"])
def test_options_take_either_spelling(added: str) -> None:
    parser = FlexibleArgumentParser()
    parser.add_argument_group("sampling").add_argument(added, type=int)
    parser.add_argument("--name")
    for given in (["--max_tokens=3"], ["--max_tokens", "3"], ["--max-tokens", "3"]):
        assert parser.parse_args([*given, "--name=a_b"]) == _namespace(max_tokens=3, name="a_b")


def test_a_program_has_flags_as_vllm_has_them() -> None:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    line = "--max_model_len 4K -tp 2 -O3 -cc.cudagraph_mode=FULL --hf-overrides.rope_theta 1"
    args = EngineArgs.from_cli_args(parser.parse_args(line.split()))
    assert (args.max_model_len, args.tensor_parallel_size) == (4096, 2)
    assert (args.optimization_level, args.hf_overrides) == (3, {"rope_theta": 1})
    assert args.create_engine_config().cudagraph_mode == "FULL"


def test_an_option_of_the_program_stays_its_own() -> None:
    """`log_level` is a setting of vLLM's newest version, and of its own older server."""
    parser = FlexibleArgumentParser()
    parser.add_argument("--log-level", default="debug")
    args = EngineArgs.add_cli_args(parser).parse_args(["--log-level", "info", "--seed", "3"])
    found = EngineArgs.from_cli_args(args)
    assert (args.log_level, found.seed, found.log_level) == ("info", 3, EngineArgs().log_level)
    found.create_engine_config()


def _namespace(**values: object) -> object:
    import argparse

    return argparse.Namespace(**values)


def test_stand_in_modules_look_like_modules() -> None:
    module = import_module("vllm.utils")
    assert isinstance(module, ModuleType)
    assert module.__name__ == "vllm.utils"
    assert module.print_utils is import_module("vllm.utils.print_utils")


def test_eager_is_about_cuda_graphs_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax_engine.compat.stand_ins import EngineArgs

    def start(settings: dict[str, object], step_timeout: float, place: object) -> None:
        assert settings["model"] == "mine"
        raise jax_engine.ConfigError(f"enforce_eager={settings['enforce_eager']}")

    monkeypatch.setattr("jax_engine.serving.engine_group.EngineClient", start)
    with pytest.raises(jax_engine.ConfigError, match="enforce_eager=False"):
        jax_engine.AsyncLLM.from_engine_args(EngineArgs(model="mine", enforce_eager=True))
    assert not EngineArgs(enforce_eager=True).create_engine_config().enforce_eager
    assert jax_engine.EngineArgs(enforce_eager=True).create_engine_config().enforce_eager


def test_a_parser_reads_the_words_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax_engine.compat.stand_ins import FlexibleArgumentParser

    monkeypatch.setattr("sys.argv", ["program", "--max_tokens", "8"])
    parser = FlexibleArgumentParser()
    parser.add_argument("--max-tokens", type=int)
    assert parser.parse_args().max_tokens == 8
