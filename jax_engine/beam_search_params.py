"""The parameters of `LLM.beam_search`."""

from dataclasses import dataclass, field

from jax_engine.checks import check_integer
from jax_engine.errors import InvalidRequestError
from jax_engine.sampling_params import EarlyStopping, RequestOutputKind, SamplingParams
from jax_engine.typed_fields import check_types, named_fields


@named_fields(InvalidRequestError)
@dataclass
class BeamSearchParams:
    """Beam search (paper, section 4.4), with vLLM's names.

    Attributes:
        beam_width: Beams kept from step to step, and outputs returned; >= 1.
        max_tokens: Longest output, >= 1.
        ignore_eos: Go on past the end-of-sequence token.
        temperature: Divides the logits; 0 leaves them as they are.
        length_penalty: The score of a finished beam is its cumulative log-probability divided by
            its length to this power: above 0 longer beams are favoured.
        early_stopping: When to stop, once `beam_width` beams have finished. True: at once. False:
            when no running beam scores better at its current length. "never": when none can at
            any length.

    A search of width 1 gives the greedy output, except with "never" and a positive length penalty:
    then it may pass an end-of-sequence token and find a longer output with a better score.

    Raises:
        InvalidRequestError: `beam_width` is below 1; for other fields, by `sampling_params`.
    """

    beam_width: int
    max_tokens: int = 16
    ignore_eos: bool = False
    temperature: float = 0.0
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        check_types(self, InvalidRequestError)
        check_integer("beam_width", self.beam_width, 1)

    def sampling_params(self) -> SamplingParams:
        """The same search as a request, which can share a batch with any others."""
        return SamplingParams(
            use_beam_search=True,
            n=self.beam_width,
            max_tokens=self.max_tokens,
            ignore_eos=self.ignore_eos,
            temperature=self.temperature,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            output_kind=RequestOutputKind.FINAL_ONLY,
            num_speculative_tokens=0,
        )
