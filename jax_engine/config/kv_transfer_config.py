"""`KVTransferConfig`: vLLM's way to say that engines find each other's blocks in a folder.

vLLM's `ExampleConnector` writes the KV cache of prompts to files in a shared folder, and an engine
that gets a prompt with the same beginning reads them. `kv_cache_dir` does that here. So this
connector is `kv_cache_dir` under another name. The files are not vLLM's: both engines must be
jax-engine's. Other connectors move blocks over a network or with a package, and are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from jax_engine.checks import check_types, shown, suggestion
from jax_engine.errors import ConfigError

CONNECTOR, FOLDER = "ExampleConnector", "shared_storage_path"
_BOTH, _RECOMPUTE = "kv_both", "recompute"


@dataclass(frozen=True, kw_only=True)
class KVTransferConfig:
    """Where blocks of prompts go to and come from, with vLLM's names.

    Attributes:
        kv_connector: "ExampleConnector". None: blocks stay in the engine, and nothing else counts.
        kv_role: "kv_both": the engine writes blocks and reads them.
        kv_connector_extra_config: `shared_storage_path`: the folder. It becomes `kv_cache_dir`.
        kv_load_failure_policy: "recompute", as always here; None: the same.
        engine_id: A name, which means nothing here.

    Raises:
        ConfigError: A field has a value that is not supported, or the folder is not named.
    """

    kv_connector: str | None = None
    kv_role: str | None = None
    kv_connector_extra_config: Mapping[str, Any] = field(default_factory=dict)
    kv_load_failure_policy: str | None = None
    engine_id: str | None = None

    def __post_init__(self) -> None:
        check_types(self, ConfigError, "kv_transfer_config: ")
        if self.kv_connector is None:
            return
        _require("kv_connector", self.kv_connector, CONNECTOR, "others move blocks in other ways")
        _require("kv_role", self.kv_role, _BOTH, "an engine writes blocks and reads them")
        policy = self.kv_load_failure_policy or _RECOMPUTE
        _require("kv_load_failure_policy", policy, _RECOMPUTE, "a block that is lost is computed")
        extra = self.kv_connector_extra_config
        for name in extra:
            if name != FOLDER:
                raise _error(f"kv_connector_extra_config has {shown(name)}; known: {FOLDER!r}")
        if not isinstance(extra.get(FOLDER), str) or not extra[FOLDER]:
            raise _error(
                f"kv_connector_extra_config must name a folder as {FOLDER!r}, "
                f"got {shown(extra.get(FOLDER))}"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """From a mapping of fields. Raises ConfigError if a key is none of them."""
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise _error(f"{shown(name)} is no key of it here{suggestion(name, known)}")
        return cls(**given)

    @property
    def folder(self) -> str | None:
        """The folder that blocks go to; None: they stay in the engine."""
        return None if self.kv_connector is None else self.kv_connector_extra_config[FOLDER]


def with_kv_transfer_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the folder of `kv_transfer_config` to `kv_cache_dir`.

    Raises:
        ConfigError: It is not supported, or `kv_cache_dir` names another folder.
    """
    given = settings.get("kv_transfer_config")
    if not isinstance(given, Mapping | KVTransferConfig):
        return dict(settings)  # None; or what is refused with the other settings
    config = given if isinstance(given, KVTransferConfig) else KVTransferConfig.of(given)
    moved = {**settings, "kv_transfer_config": None}
    if config.folder is None:
        return moved
    folder = settings.get("kv_cache_dir")
    if folder not in (None, config.folder):
        raise _error(
            f"{FOLDER} and kv_cache_dir must be the same, got {shown(config.folder)} and "
            f"{shown(folder)}: leave one of them out"
        )
    return {**moved, "kv_cache_dir": config.folder}


def _require(name: str, value: str | None, wanted: str, reason: str) -> None:
    if value != wanted:
        raise _error(f"{name} must be {wanted!r}, got {shown(value)}: {reason}")


def _error(message: str) -> ConfigError:
    return ConfigError(f"kv_transfer_config: {message}")
