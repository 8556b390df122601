"""`read_adapter`: an adapter from a folder of PEFT's or a GGUF file."""

from pathlib import Path

from jax_engine.errors import ModelNotFoundError
from jax_engine.lora.adapter import Adapter
from jax_engine.lora.gguf import read_gguf
from jax_engine.lora.modules import Modules
from jax_engine.lora.peft import read_folder


def read_adapter(path: str | Path, modules: Modules, *, max_lora_rank: int) -> Adapter:
    """The adapter at a path, for the model with these modules. `adapter_of_arrays` reads none.

    Args:
        max_lora_rank: the largest rank that is accepted, of any module.

    Raises:
        ModelNotFoundError: nothing is there.
        ConfigError: the adapter's configuration asks for what is not computed.
        MissingPackageError: a GGUF file without the `gguf` package.
        WeightsError: a file is torn, or the tensors do not fit the model or the limit.
    """
    place = Path(path)
    if place.is_dir():
        return read_folder(place, modules, max_lora_rank)
    if not place.is_file():
        raise ModelNotFoundError(f"no adapter at {place}: give a folder of PEFT's or a GGUF file.")
    return read_gguf(place, modules, max_lora_rank)
