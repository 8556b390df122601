"""What a user asks of `quantize`, checked before anything is read."""

import dataclasses
import re

from jax_engine.errors import ConfigError
from jax_engine.models.checkpoints.file_schema import short

ALGORITHMS = ("rtn", "gptq", "awq")
FORMATS = ("w4a16", "w8a16", "w8a8", "gptq", "awq", "fp8")
OF_ROWS = ("w8a8", "fp8")  # formats whose scales are those of outputs
OF_AWQ = ("w4a16", "awq")  # formats that AWQ is for
GROUP_SIZES = (128, 64, 32)  # what is tried, in this order
MAX_GROUP_SIZE = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Options:
    """
    Attributes:
        format: one of FORMATS.
        algorithm: "rtn" rounds each number to the nearest code; "gptq" makes up for errors and
            "awq" scales inputs, both by calibration.
        group_size: inputs that share a scale; -1: those of an output do; None: by the format.
        asymmetric: whether groups have zero points.
        ignore: regular expressions; modules in whose names one is found stay as they are.
        act_order: gptq: inputs that matter most come first.
        damping: gptq: added to the Hessian's diagonal, as a part of its mean.
        smoothing_strength: w8a8: SmoothQuant's exponent, by calibration; None: no smoothing.
        calibration: a file of text; None: the topics of Python's own help.
        samples: how many pieces of the text are used, at most.
        sample_length: tokens of a piece.
        seed: chooses the pieces.

    Raises:
        ConfigError: a value is unknown or out of range, or contradicts another one.
    """

    format: str
    algorithm: str = "rtn"
    group_size: int | None = None
    asymmetric: bool = False
    ignore: tuple[str, ...] = ()
    act_order: bool = False
    damping: float = 0.01
    smoothing_strength: float | None = None
    calibration: str | None = None
    samples: int = 64
    sample_length: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        _known("format", self.format, FORMATS)
        _known("algorithm", self.algorithm, ALGORITHMS)
        of_rows = self.format in OF_ROWS
        size = self.group_size
        if of_rows and size not in (None, -1):
            raise ConfigError(f"group_size must be -1 for format {self.format!r}, got {size}.")
        if size is not None and size != -1 and not 1 <= size <= MAX_GROUP_SIZE:
            raise ConfigError(f"group_size must be -1 or from 1 on, got {size}.")
        if self.asymmetric and (of_rows or (self.format == "w8a16" and size in (None, -1))):
            raise ConfigError(f"format {self.format!r} has no zero points; drop asymmetric.")
        if self.act_order and (self.algorithm != "gptq" or self.format not in ("w4a16", "gptq")):
            raise ConfigError(
                "act_order needs algorithm 'gptq' and format 'w4a16' or 'gptq', got "
                f"{self.algorithm!r} and {self.format!r}."
            )
        self._check_scaling()
        if not 0 < self.damping <= 1:
            raise ConfigError(f"damping must be above 0 and at most 1, got {self.damping}.")
        for name, value in (("samples", self.samples), ("sample_length", self.sample_length)):
            if not 1 <= value <= 1 << 20:
                raise ConfigError(f"{name} must be from 1 to {1 << 20}, got {value}.")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed must be from 0 to 2**63 - 1, got {self.seed}.")
        for pattern in self.ignore:
            _check_pattern(pattern)

    def _check_scaling(self) -> None:
        if self.algorithm == "awq" and self.format not in OF_AWQ:
            raise ConfigError(
                f"algorithm 'awq' needs format {' or '.join(map(repr, OF_AWQ))}, got "
                f"{self.format!r}."
            )
        if self.smoothing_strength is None:
            return
        if self.format != "w8a8":
            raise ConfigError(f"smoothing_strength needs format 'w8a8', got {self.format!r}.")
        if not 0 <= self.smoothing_strength <= 1:
            raise ConfigError(
                f"smoothing_strength must be from 0 to 1, got {self.smoothing_strength}."
            )

    @property
    def calibrates(self) -> bool:
        """Whether a text is needed."""
        return self.algorithm != "rtn" or self.smoothing_strength is not None

    @property
    def patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(one) for one in self.ignore]


def _known(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{name} {short(value)} is not known; known: {', '.join(known)}.")


def _check_pattern(text: str) -> None:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(
            f"ignore must be a regular expression, got {short(text)}: {error}."
        ) from None
