"""Loads the files of `--tool-parser-plugin` and `--reasoning-parser-plugin`.

A plugin written for vLLM stays as it is: `import vllm` gives `jax_engine.compat.vllm` in the
server's process, once there is a plugin.
"""

import argparse
import logging
import sys
import warnings
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_engine.errors import ConfigError

logger = logging.getLogger("jax_engine")

if TYPE_CHECKING:
    from jax_engine.serving.parsers.plugin_classes import ParserRegistry


def load_plugin(flag: str, path: str, registry: "ParserRegistry[Any]") -> list[str]:
    """Runs a file, and returns the names that it has registered.

    Args:
        flag: the name of the flag that gave the path, for messages.

    Raises:
        ConfigError: there is no such file, it raises, or it registers nothing.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(f"{flag} must be a Python file, got {path!r}: there is none")
    with warnings.catch_warnings(action="ignore"):
        import_module("jax_engine.compat.vllm").install(replace=True)
    before = dict(registry.parsers)
    name = f"jax_engine_plugin_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{flag} must be a Python file, got {path!r}: its name must end with .py")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ConfigError as error:
        raise ConfigError(f"{flag} {path!r}: {error}") from error
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        message = f"{flag} {path!r} raised {type(error).__name__}: {reason}"
        raise ConfigError(message) from error
    found = [one for one, cls in registry.parsers.items() if before.get(one) is not cls]
    if not found:
        raise ConfigError(
            f"{flag} {path!r} registers no parser: decorate a class with register_module('NAME')"
        )
    return found


def load_plugins(args: argparse.Namespace) -> None:
    """Loads the plugins of a command line, and checks the names of its parsers.

    Raises:
        ConfigError: as `load_plugin`; or nobody has registered a name.
    """
    from jax_engine.serving.parsers.plugin_classes import ReasoningParserManager, ToolParserManager

    for parser, plugin, registry in (
        ("tool_call_parser", "tool_parser_plugin", ToolParserManager),
        ("reasoning_parser", "reasoning_parser_plugin", ReasoningParserManager),
    ):
        path, named = getattr(args, plugin), getattr(args, parser)
        flag = f"--{parser.replace('_', '-')}"
        if path:
            found = load_plugin(f"--{plugin.replace('_', '-')}", path, registry)
            if named not in found:
                logger.warning("%s is not used: name it by %s", " or ".join(found), flag)
        registry.check(flag, named)


def use_plugin_markers(args: argparse.Namespace) -> None:
    """Tells the engine, which knows no plugins, the markers of one, if its class has them."""
    from jax_engine.serving.parsers.plugin_classes import ReasoningParserManager, markers_of

    args.reasoning_parser_plugin = None
    cls = ReasoningParserManager.parsers.get(args.reasoning_parser)
    if cls is None:
        return
    begin, end = markers_of(cls)
    if args.reasoning_config is None and begin and end:
        args.reasoning_config = {"reasoning_start_str": begin, "reasoning_end_str": end}
    args.reasoning_parser = None
