"""What clients ask for: small requests that share prefixes, and a few that are too large."""

from dataclasses import dataclass
from random import Random

from jax_engine import RequestOutputKind, SamplingParams
from tests.simulation.model import VOCABULARY, letter
from tests.simulation.settings import Settings

KINDS = list(RequestOutputKind)
STEMS = [[0, 1, 3, 4] * 8, [1, 1, 4, 0, 3] * 6]


@dataclass(frozen=True)
class Request:
    """
    Attributes:
        timeout: Seconds, or None.
        waited: Seconds since when the client says that it came; None: it says nothing.
        adapter: The number of `some_adapter`.
    """

    prompt: list[int]
    params: SamplingParams
    salt: str | None
    priority: int
    timeout: float | None
    waited: float | None
    adapter: int | None = None

    def __str__(self) -> str:
        """For the log: what is drawn of it."""
        params = self.params
        drawn = [params.n, params.max_tokens, params.min_tokens, params.seed, params.ignore_eos,
                 params.stop_token_ids, params.stop, params.output_kind.name]  # fmt: skip
        rest = [self.prompt, self.salt, self.priority, self.timeout, self.waited, self.adapter]
        return " ".join(map(repr, drawn + rest))


def draw_request(chance: Random, settings: Settings, *, streams: bool = True) -> Request:
    """
    Args:
        streams: False for a call that waits: one output, at the end.
    """
    longest = settings.max_model_len
    n = chance.choice([1, 1, 1, 1, 2, 2, 3, 7])
    max_tokens = chance.choice([1, 2, 5, longest // 2, longest // 2, longest, None])
    stop: list[str] | None = None
    if settings.has_text and chance.random() < 0.5:
        letters = [letter(token) for token in range(VOCABULARY) if letter(token)]
        stop = ["".join(chance.choices(letters, k=chance.choice([1, 2, 2, 3]))) for _ in range(2)]
    params = SamplingParams(
        n=n,
        temperature=1.0,
        seed=chance.choice([None, None, 0, 7, 2**40 + 7, 2**63 - 1]),
        max_tokens=max_tokens,
        min_tokens=chance.choice([0, 0, 0, min(3, max_tokens or 3)]) * settings.has_edits,
        ignore_eos=chance.random() < 0.8,
        stop_token_ids=chance.choice([None, None, None, None, [1], [0, 3]]),
        stop=stop,
        output_kind=chance.choice(KINDS) if streams else RequestOutputKind.FINAL_ONLY,
    )
    return Request(
        prompt=_prompt(chance, longest),
        params=params,
        salt=chance.choice([None, None, None, "salt"]),
        priority=chance.choice([0, 0, 1, -1]) if _has_priorities(settings) else 0,
        timeout=chance.choice([None, None, None, None, None, 1 / 1024, 0.25, 1.0, 60.0]),
        waited=chance.choice([None, None, 0.0, 0.5]),
        adapter=chance.choice([None, 0, 1, 2, 3]) if settings.has_adapters else None,
    )


def _prompt(chance: Random, longest: int) -> list[int]:
    stem = chance.choice(STEMS)[: chance.randint(0, max(1, longest * 2 // 3))]
    if chance.random() < 0.05:
        stem = [1] * longest  # leaves no room for an output
    return [*stem, *chance.choices(range(VOCABULARY), k=chance.choice([1, 1, 2, 5]))]


def _has_priorities(settings: Settings) -> bool:
    return bool(settings.config["scheduling_policy"] == "priority")
