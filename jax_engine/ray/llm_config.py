"""`LLMConfig`: a model, its engine's settings, and its deployment's, under the names of Ray's own.

    LLMConfig(
        model_loading_config={"model_id": "small", "model_source": "HuggingFaceTB/SmolLM2-135M"},
        engine_kwargs={"max_model_len": 2048, "tool_call_parser": "hermes"},
        deployment_config={"autoscaling_config": {"min_replicas": 1, "max_replicas": 4}},
    )

Everything is checked where it is written, before Ray starts a process.
"""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from types import NoneType
from typing import Any, Self

from jax_engine.checks import shown
from jax_engine.commands.serve import engine_args, server_settings
from jax_engine.commands.serve_flags import add_arguments
from jax_engine.config.engine_config import EngineConfig
from jax_engine.errors import ConfigError, InvalidRequestError, need
from jax_engine.processes.ray_actor import INSTALL

LOADING = ("model_id", "model_source")
# Flags of `jax-engine serve` about what is Ray's here: its port, its logs, and how it ends.
OF_RAY = (
    "host", "port", "uds", "root_path", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs",
    "ssl_cert_reqs", "ssl_ciphers", "enable_ssl_refresh", "shutdown_timeout", "uvicorn_log_level",
    "log_format", "disable_log_stats", "log_stats_interval", "enable_log_requests",
    "enable_log_outputs", "max_log_len",
    "otlp_traces_endpoint", "config",
)  # fmt: skip
OF_LOADING = ("model", "model_tag", "served_model_name")
MOST_NAMED = 5


def need_ray(what: str, module: str) -> None:
    """Checks that a part of Ray is there.

    Raises:
        MissingPackageError: It is not installed.
    """
    need(module, what, install=INSTALL)


def check_names(where: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """
    Raises:
        ConfigError: It is no mapping, or has a name that is not known.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a mapping, got {shown(given)}")
    unknown = [name for name in given if name not in known]
    if unknown:
        like = get_close_matches(str(unknown[0]), known, n=3) or sorted(known)
        names = ", ".join(like[:MOST_NAMED])
        raise ConfigError(f"{where} must have names such as {names}, got {shown(unknown[0])}")


@dataclass(kw_only=True)
class LLMConfig:
    """A model, the settings of its engines, and the options of its deployment.

    Attributes:
        model_loading_config: "model_id": what clients call the model; "model_source": a directory,
            a GGUF file or a hub name; left out, it is the id.
        engine_kwargs: Settings of the engine, and flags of `jax-engine serve` by their names in
            Python, such as "max_model_len" and "tool_call_parser".
        deployment_config: Options of Serve's deployment: "num_replicas", "autoscaling_config",
            "ray_actor_options", "max_ongoing_requests", "request_router_config", ...
        accelerator_type: The GPUs that a replica needs, by Ray's name, as many as the model is
            cut over; None: `ray_actor_options` says what it needs.

    Raises:
        ConfigError: A field is wrong, or one of its names is unknown.
    """

    model_loading_config: Mapping[str, Any]
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    deployment_config: Mapping[str, Any] = field(default_factory=dict)
    accelerator_type: str | None = None

    def __post_init__(self) -> None:
        check_names("model_loading_config", self.model_loading_config, LOADING)
        for name in LOADING[: 1 if self.model_loading_config.get(LOADING[1]) is None else 2]:
            value = self.model_loading_config.get(name)
            if not isinstance(value, str) or not value:
                raise ConfigError(
                    f"model_loading_config[{name!r}] must be a text that is not empty, got "
                    f"{shown(value)}"
                )
        self._check_kwargs()
        self.engine_config()
        check_deployment("deployment_config", self.deployment_config)
        if not isinstance(self.accelerator_type, str | None):
            raise ConfigError(
                f"accelerator_type must be a text or None, got {shown(self.accelerator_type)}"
            )

    def _check_kwargs(self) -> None:
        defaults = vars(_defaults())
        known = set(defaults) - {*OF_RAY, *OF_LOADING}
        check_names("engine_kwargs", self.engine_kwargs, known)
        for name in self.engine_kwargs.keys() - {one.name for one in fields(EngineConfig)}:
            kind, value = type(defaults[name]), self.engine_kwargs[name]
            kinds = (int, float) if kind is float else kind
            if kind is not NoneType and not isinstance(value, kinds):
                raise ConfigError(
                    f"engine_kwargs[{name!r}] must be of type {kind.__name__}, got {shown(value)}"
                )

    @classmethod
    def of(cls, given: "LLMConfig | Mapping[str, Any]") -> Self:
        """A configuration, or the fields of one, as in a file for `serve deploy`.

        Raises:
            ConfigError: As `LLMConfig`.
        """
        if isinstance(given, cls):
            return given
        names = [one.name for one in fields(cls)]
        if not isinstance(given, Mapping):
            raise ConfigError(f"an LLMConfig must be one or a mapping, got {shown(given)}")
        check_names("an LLMConfig", given, names)
        if names[0] not in given:
            raise ConfigError(f"an LLMConfig must have {names[0]}, got {shown(dict(given))}")
        return cls(**given)

    @property
    def model_id(self) -> str:
        """What clients call the model."""
        return str(self.model_loading_config["model_id"])

    def arguments(self) -> argparse.Namespace:
        """What a command line of `jax-engine serve` with these settings would give."""
        args = _defaults()
        vars(args).update(self.engine_kwargs)
        args.model = self.model_loading_config.get("model_source") or self.model_id
        args.served_model_name = [self.model_id]
        return args

    def engine_config(self) -> EngineConfig:
        """The engine's settings, checked.

        Raises:
            ConfigError: One is out of range.
        """
        args = self.arguments()
        try:
            server_settings(args)
            return engine_args(args).create_engine_config()
        except (InvalidRequestError, TypeError) as error:
            raise ConfigError(f"engine_kwargs: {error}") from error

    def num_gpus(self) -> int:
        """GPUs of one replica: none if no accelerator is named."""
        return self.engine_config().world_size if self.accelerator_type is not None else 0


def _defaults() -> argparse.Namespace:
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    add_arguments(parser)
    return parser.parse_args([])


def check_deployment(where: str, given: Mapping[str, Any]) -> None:
    """Checks how many replicas there are to be; Serve checks the rest.

    Raises:
        ConfigError: A number is out of range, or contradicts another.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"{where} must be a mapping, got {shown(given)}")
    replicas, scaling = given.get("num_replicas"), given.get("autoscaling_config")
    if replicas not in (None, "auto"):
        _at_least(f"{where}['num_replicas']", replicas, 1)
        if scaling is not None:
            raise ConfigError(
                f"{where} must have num_replicas or autoscaling_config, got both: "
                f"{shown(replicas)} and {shown(scaling)}"
            )
    if not isinstance(scaling, Mapping):
        return
    low, high = scaling.get("min_replicas", 1), scaling.get("max_replicas", 1)
    name = f"{where}['autoscaling_config']"
    _at_least(f"{name}['min_replicas']", low, 0)
    _at_least(f"{name}['max_replicas']", high, 1)
    if low > high:
        raise ConfigError(
            f"{name}['min_replicas'] must be at most max_replicas ({high}), got {low}"
        )


def _at_least(name: str, value: Any, low: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{name} must be an integer of at least {low}, got {shown(value)}")
