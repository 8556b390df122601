"""Constraints on a request's tokens, and the masks of allowed tokens that they become in a step.

A request's parameters are converted to constraints before it is accepted. Constraints that do not
depend on the output become a static mask, packed once per request. Longer bad words, a guide and
logits processors depend on the last token, which the host must know: `needs_last_token`.

The allowed tokens of each sample of a masked step are computed while the device runs the model.
Grammars and logits processors stay with the controller, even if the runner is in another process:
the runner gets a bit for each token, or edited logits (`jax_engine.step`).

What `SamplingParams.thinking_token_budget` forces counts more than all other masks but a grammar's.
A request with no other constraint needs masks only once its budget may be spent.

`SamplingParams.trace_decode_token_ids` is a constraint, too: an output that is known is fed back
token by token. Log-probabilities and ranks are those that the model gives these tokens.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, UInt32

from jax_engine.config.reasoning_markers import ReasoningMarkers
from jax_engine.core.scheduler_output import ScheduledSequence, SchedulerOutput
from jax_engine.core.sequence import NO_TOKEN
from jax_engine.core.sequence_group import SequenceGroup
from jax_engine.engine.requests.thinking_budget import MarkerTokens, ThinkingBudget
from jax_engine.errors import InvalidRequestError
from jax_engine.guided.compiler import GuideCompiler
from jax_engine.guided.guide import Guide, behind, fill_masks, reason_of
from jax_engine.sampling.masked_steps import (
    ALL_TOKENS,
    Processor,
    as_booleans,
    bad_word_tokens,
    completing_tokens,
    num_words,
    run_processors,
    token_bits,
    with_prompt,
)
from jax_engine.sampling_params import SamplingParams
from jax_engine.tokenization.tokenizer import Tokenizer

_EXCLUDED = (
    "prompt_logprobs", "bad_words", "structured_outputs", "allowed_token_ids",
    "thinking_token_budget",
)  # fmt: skip


def replay_trace(params: SamplingParams, prompt_len: int, max_model_len: int) -> None:
    """Makes a request, the engine's own copy, draw its trace; without one it stays as it is.

    The trace is cut to what `max_model_len` leaves room for. Nothing else ends the output.

    Raises:
        InvalidRequestError: The trace is empty, or something else asks for other tokens.
    """
    trace = params.trace_decode_token_ids
    if trace is None:
        return
    if not trace:
        raise InvalidRequestError("trace_decode_token_ids must hold at least 1 id, got none")
    for name, default in [
        ("n", 1),
        ("use_beam_search", False),
        *((one, None) for one in _EXCLUDED),
    ]:
        if getattr(params, name) not in (default, []):
            raise InvalidRequestError(
                f"{name} must be left out with trace_decode_token_ids, got {getattr(params, name)}"
            )
    trace = trace[: max(1, max_model_len - prompt_len)]
    params.max_tokens, params.min_tokens, params.ignore_eos = len(trace), 0, True
    params.stop, params.stop_token_ids, params.best_of = None, [], None
    params.logits_processors = [Replay(trace)]


class Replay:
    """A logits processor that leaves the next token of a trace as the only one."""

    def __init__(self, trace: Sequence[int]) -> None:
        self._trace = list(trace)

    def __call__(self, output: list[int], logits: np.ndarray) -> np.ndarray:
        # A step planned ahead asks once more than there are tokens.
        token = self._trace[min(len(output), len(self._trace) - 1)]
        only = np.full_like(logits, -np.inf)
        only[token] = 0.0
        return only


@dataclass(frozen=True, slots=True)
class RequestConstraints:
    """What restricts one request's tokens beyond penalties and bias.

    Attributes:
        allowed: Bits of `allowed_token_ids` (of all tokens if None) minus the bad words of one
            token.
        ends: Bits of the tokens that end a sequence, forbidden before `min_tokens`.
        bad_words: Bad words of two or more tokens.
        processors: Logits processors, in the order of application.
        guide: The grammar, and each sequence's place in it.
        thinking: Which tokens end reasoning that has spent its budget.
        is_free: Whether nothing but `thinking` restricts it.
    """

    allowed: UInt32[np.ndarray, " words"]
    ends: UInt32[np.ndarray, " words"]
    min_tokens: int
    bad_words: list[list[int]]
    processors: list[Processor]
    guide: Guide | None
    thinking: ThinkingBudget | None = None
    is_free: bool = False

    @property
    def needs_last_token(self) -> bool:
        depends = self.guide is not None or self.thinking is not None
        return bool(depends or self.bad_words or self.processors)

    @property
    def num_free(self) -> int:
        """As `SequenceGroup.num_free`, at first."""
        return self.thinking.num_free if self.is_free and self.thinking is not None else 0


class ConstraintBuilder:
    """Builds the constraints that become masks on the host.

    Args:
        vocab_size: Width of the model's logits, padding included.
        reasoning: What the model writes around its reasoning; None: it is not known.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        reasoning: ReasoningMarkers | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._reasoning = reasoning
        self._guides = GuideCompiler(tokenizer, vocab_size, eos_token_ids)

    def build(
        self, params: SamplingParams, prompt: Sequence[int] = ()
    ) -> RequestConstraints | None:
        """Returns None for a request without constraints.

        Args:
            prompt: Its token ids, in which reasoning may have begun.

        Raises:
            InvalidRequestError: They need a tokenizer that the engine lacks, name no valid grammar,
                or leave no token that could ever be drawn.
        """
        words = self._bad_words(params)
        guided, allowed = params.structured_outputs, params.allowed_token_ids
        ends = self._eos_token_ids | set(params.stop_token_ids or ())
        restricted = words or guided or allowed is not None or params.logits_processors
        thinking = self._thinking_budget(params, prompt, ends)
        is_free = not restricted and len(ends) < self._vocab_size
        if is_free and thinking is None:
            return None
        everything = range(self._vocab_size)
        single = {word[0] for word in words if len(word) == 1}
        left = set(everything if allowed is None else allowed) - single
        if not left or (params.min_tokens and left <= ends):
            raise InvalidRequestError(
                f"allowed_token_ids must leave at least 1 token that bad_words and min_tokens "
                f"({params.min_tokens}) do not forbid, got "
                f"{'all' if allowed is None else len(set(allowed))} ids of which none is left"
            )
        return RequestConstraints(
            allowed=token_bits(left, self._vocab_size),
            ends=token_bits(ends & set(everything), self._vocab_size),
            min_tokens=params.min_tokens,
            bad_words=[word for word in words if len(word) > 1],
            processors=[
                _in_this_context(with_prompt(one)) for one in params.logits_processors or ()
            ],
            guide=self._guides.guide(guided) if guided else None,
            thinking=thinking,
            is_free=is_free,
        )

    def _thinking_budget(
        self, params: SamplingParams, prompt: Sequence[int], ends: frozenset[int]
    ) -> ThinkingBudget | None:
        budget = params.thinking_token_budget
        if budget is None:
            return None
        if self._marker_tokens is None:
            raise InvalidRequestError(
                f"thinking_token_budget must be left out, got {budget}: the engine does not know "
                "how this model ends its reasoning. Name it by reasoning_config="
                "{'reasoning_parser': ...}"
            )
        close = self._marker_tokens.close
        if params.min_tokens and not ends.isdisjoint(close):
            raise InvalidRequestError(
                f"min_tokens must be left out with thinking_token_budget, got {params.min_tokens}: "
                "what ends this model's reasoning ends the output, too"
            )
        return ThinkingBudget.of(self._marker_tokens, budget, prompt, self._tokenizer)

    @cached_property
    def _marker_tokens(self) -> MarkerTokens | None:
        if self._reasoning is None or self._tokenizer is None:
            return None
        found = MarkerTokens.of(self._reasoning, self._tokenizer)
        known = all(token < self._vocab_size for token in found.close)
        return found if found.close and known else None

    def _bad_words(self, params: SamplingParams) -> list[list[int]]:
        """Bad words as token sequences; `bad_words_token_ids` gives them without a tokenizer."""
        given: list[list[int]] | None = getattr(params, "bad_words_token_ids", None)
        if given is None and params.bad_words:
            if self._tokenizer is None:
                raise InvalidRequestError(
                    "bad_words need text, but the engine has no tokenizer "
                    "(skip_tokenizer_init=True): use logit_bias of -100"
                )
            encode = self._tokenizer.encode
            given = bad_word_tokens(
                params.bad_words, lambda text: encode(text, add_special_tokens=False)
            )
        # A tokenizer may have tokens without logits in the model: they are never drawn.
        return [word for word in given or () if max(word) < self._vocab_size]


def _in_this_context(processor: Callable[..., Any]) -> Processor:
    """A processor with the caller's context variables, for `np.errstate` is one of them.

    The thread that runs the engine runs it.
    """
    context, run = copy_context(), with_prompt(processor)
    return lambda prompt, output, logits: context.run(run, prompt, output, logits)


logger = logging.getLogger("jax_engine")


@dataclass(frozen=True, slots=True)
class ConstrainedSamples:
    """The samples of a step behind one token of a sequence: one, or n of a prompt about to fork.

    Attributes:
        samples: Their places in `Step.samples`, in which masks and logits have a row for each.
        drafts: Those of the sequence's drafts that stand before them.
    """

    item: ScheduledSequence
    constraints: RequestConstraints
    samples: slice
    drafts: tuple[int, ...] = ()

    @property
    def output(self) -> list[int]:
        return [*self.item.seq.output_token_ids, *self.drafts]


def constrained_samples(plan: SchedulerOutput) -> list[ConstrainedSamples]:
    """The samples of a step that are for requests with constraints."""
    found, first = [], 0
    for item in plan.scheduled:
        samples = slice(first, first + item.num_samples)
        first += item.num_draws
        its = item.group.constraints
        if isinstance(its, RequestConstraints) and item.num_samples and not _is_free(item):
            found.append(ConstrainedSamples(item, its, samples))
            for i in range(1, len(item.drafts) + 1):
                place = slice(samples.start + i, samples.stop + i)
                found.append(ConstrainedSamples(item, its, place, item.drafts[:i]))
    return found


def _is_free(item: ScheduledSequence) -> bool:
    """Whether nothing that a step draws for a sequence is restricted."""
    free = item.group.num_free
    if not free:
        return False
    return item.seq.num_tokens - item.group.prompt_len + len(item.drafts) < free


@dataclass(slots=True)
class StepMasks:
    """The constraints of one masked step.

    Attributes:
        parts: One for each constrained sequence that is sampled; at least one.
        num_samples: Tokens that the step draws.
        failed: Requests that cannot go on, with the reason; filled during the computation.
        verified: How many draws of a sequence with drafts count, by seq_id, where not all do: no
            token is allowed behind the draft that comes then, or its grammar does not allow it.
        seconds: Time spent on masks.
    """

    parts: list[ConstrainedSamples]
    num_samples: int
    vocab_size: int
    failed: dict[SequenceGroup, str] = field(default_factory=dict)
    verified: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    def allowed(self) -> UInt32[np.ndarray, "samples words"]:
        """The tokens that each sample may be; all of them for samples without constraints.

        Together, constraints may leave no token: such a request has failed, unless it is a beam
        search.
        """
        started = time.perf_counter()
        mask = np.full((self.num_samples, num_words(self.vocab_size)), ALL_TOKENS)
        self._fill_guides(mask)
        for part in self.parts:
            constraints, row = part.constraints, mask[part.samples.start]
            if constraints.thinking is None or not _force(part, constraints.thinking, row):
                row &= constraints.allowed
                for token in completing_tokens(constraints.bad_words, part.output):
                    row[token // 32] &= ~_bit(token)
            self._note_stuck(part, row & ~self._forbidden_ends(part))
            mask[part.samples] = row
        self.seconds += time.perf_counter() - started
        return mask

    def process(
        self, logits: Callable[[], np.ndarray], mask: UInt32[np.ndarray, "samples words"]
    ) -> Float[np.ndarray, "samples V"] | None:
        """The logits after the requests' own processors; None without processors.

        Args:
            logits: Waits for the model and returns its logits [samples, V] on the host.
        """
        parts = [part for part in self.parts if part.constraints.processors]
        if not parts:
            return None
        edited = np.array(logits())
        for part in parts:
            seq, group, first = part.item.seq, part.item.group, part.samples.start
            prompt = [] if group.has_embeds else seq.token_ids[: group.prompt_len]
            try:
                row = run_processors(
                    part.constraints.processors, prompt, part.output, edited[first]
                )
            except Exception as error:  # user code must not fail other requests
                logger.exception("request %s: a logits processor failed", group.request_id)
                self.failed[group] = f"a logits processor raised {error!r}"
                continue
            edited[part.samples] = row
            left = as_booleans(mask[first] & ~self._forbidden_ends(part), self.vocab_size)
            self._note_stuck(part, left & (row > -np.inf))
        return edited

    def _note_stuck(self, part: ConstrainedSamples, left: np.ndarray) -> None:
        """Fails a request without tokens left; a beam may die while the others go on."""
        if part.item.group.beam is None and not left.any():
            self._note_failed(part, NO_TOKEN)

    def _note_failed(self, part: ConstrainedSamples, reason: str) -> None:
        """Behind a draft nothing has failed yet: a plain step comes to that place if it must."""
        if part.drafts:
            seq_id, count = part.item.seq.seq_id, len(part.drafts)
            self.verified[seq_id] = min(count, self.verified.get(seq_id, count))
        else:
            self.failed.setdefault(part.item.group, reason)

    def _fill_guides(self, mask: np.ndarray) -> None:
        guided = [part for part in self.parts if part.constraints.guide is not None]
        if not guided:
            return
        by_guide: dict[Guide, list[ConstrainedSamples]] = {}
        for part in guided:
            by_guide.setdefault(part.constraints.guide, []).append(part)  # type: ignore[arg-type]
        pairs = []
        for guide, parts in by_guide.items():
            group = parts[0].item.group
            matchers = guide.matchers([part.item.seq for part in parts], group.unfinished())
            pairs += [
                (behind(matcher, part.drafts), part)
                for matcher, part in zip(matchers, parts, strict=True)
            ]
        fill_masks([(matcher, part.samples.start) for matcher, part in pairs], mask)
        for matcher, part in pairs:
            if matcher.is_error():
                self._note_failed(part, f"its grammar failed: {reason_of(matcher)}")

    def _forbidden_ends(self, part: ConstrainedSamples) -> np.ndarray | np.uint32:
        """Ends forbidden by `min_tokens`; like the sampler, counts a pending token as output."""
        output_len = part.item.seq.num_tokens + len(part.drafts) - part.item.group.prompt_len
        constraints = part.constraints
        return constraints.ends if output_len < constraints.min_tokens else np.uint32(0)


def _bit(token: int) -> np.uint32:
    """A token's bit in the word of a mask that has it."""
    return np.uint32(1) << np.uint32(token % 32)


def _force(part: ConstrainedSamples, thinking: ThinkingBudget, row: np.ndarray) -> bool:
    """Leaves the token that ends reasoning as the only one, if its time has come.

    Args:
        row: What a grammar allows. A token that it forbids is not forced.

    Returns:
        Whether a token was forced.
    """
    seq, group = part.item.seq, part.item.group
    token = thinking.forced(seq.seq_id, seq.token_ids, part.drafts)
    if part.constraints.is_free:
        thinking.release(group)
    if token is None or not row[token // 32] & _bit(token):
        return False
    row[:] = 0
    row[token // 32] = _bit(token)
    return True
