"""What may edit the logits before a token is picked: rules 0 to 4.

A model gives a logit to each of the V tokens. A request may change them, in this order:

0. `logits_processors`: functions of the caller, one after another. Each takes the output so far and
   the logits, or, if it has three positional parameters without a default, the prompt before these;
   it returns logits;
1. repetition penalty r, on each token that is in the prompt or the output: logit / r if the logit
   is positive, else logit * r;
2. frequency penalty, times the count of the token in the output, is taken off; then presence
   penalty, once, if the token is in the output at all. The prompt does not count here;
3. `logit_bias` is added. Then tokens that must not come next get -inf:
   - all that are not in `allowed_token_ids`, and all that `guide`, asked what may follow the
     output, does not name: it knows the grammar that the output must keep to;
   - the last token of each of `bad_words_token_ids` whose other tokens the output ends with, so a
     word of one token never comes;
   - while the output is shorter than `min_tokens`, what could end it: all end-of-sequence ids (with
     `ignore_eos` as well) and all `stop_token_ids`;
4. if reasoning has spent its budget (`thinking`, a rule of the chapter of that name), the token
   that is to end it is the only one, whatever rule 3 says of it, unless `guide` does not name it.

Everything is float64. If no token is left that is not -inf, there is nothing to draw: the chapter
`sampling` says what becomes of the request.
"""

import inspect
from collections.abc import Callable, Collection, Sequence

import numpy as np
from jaxtyping import Float

from reference.sampling_options import LogitsOptions

TokenIds = Sequence[int]


def edit_logits(
    logits: Float[np.ndarray, "V"],
    params: LogitsOptions,
    *,
    prompt_token_ids: TokenIds = (),
    output_token_ids: TokenIds = (),
    eos_token_ids: Collection[int] = (),
) -> Float[np.ndarray, "V"]:
    """Rules 0 to 4; the logits given are left as they are.

    Token 1 is to end the reasoning. A grammar that does not name it is heeded:

    >>> from types import SimpleNamespace
    >>> params = SimpleNamespace(
    ...     repetition_penalty=1.0, frequency_penalty=0.0, presence_penalty=0.0, logit_bias=None,
    ...     min_tokens=0, stop_token_ids=(), allowed_token_ids=[0],
    ...     thinking=SimpleNamespace(forced=lambda prompt, output: 1))
    >>> edit_logits(np.zeros(3), params).tolist()
    [-inf, 0.0, -inf]
    >>> params.guide = lambda output: {0, 2}
    >>> edit_logits(np.zeros(3), params).tolist()
    [0.0, -inf, -inf]
    """
    prompt = [token for token in prompt_token_ids if token >= 0]  # a vector is no token
    output = list(output_token_ids)
    edited = logits.astype(np.float64)
    for processor in getattr(params, "logits_processors", None) or ():
        edited = process(edited, processor, prompt, output)
    edited = penalise(
        edited,
        prompt,
        output,
        repetition_penalty=float(params.repetition_penalty),
        frequency_penalty=float(params.frequency_penalty),
        presence_penalty=float(params.presence_penalty),
    )
    for token, bias in (params.logit_bias or {}).items():
        edited[token] += bias
    guide, thinking = getattr(params, "guide", None), getattr(params, "thinking", None)
    must = thinking and thinking.forced(prompt, output)
    if must is not None and (guide is None or must in guide(output)):
        return keep_only(edited, {must})
    allowed = (getattr(params, "allowed_token_ids", None), guide and guide(output))
    for token_ids in allowed:
        if token_ids is not None:
            edited = keep_only(edited, token_ids)
    edited[completing(output, getattr(params, "bad_words_token_ids", None) or ())] = -np.inf
    if len(output) < params.min_tokens:
        edited[[*eos_token_ids, *(params.stop_token_ids or ())]] = -np.inf
    return edited


def process(
    logits: Float[np.ndarray, "V"],
    processor: Callable[..., object],
    prompt_token_ids: TokenIds,
    output_token_ids: TokenIds,
) -> Float[np.ndarray, "V"]:
    """Rule 0, for one processor. It gets copies, so it may do with them what it likes.

    >>> process(np.zeros(2), lambda output, logits: logits + output[-1], [7], [3]).tolist()
    [3.0, 3.0]
    >>> process(np.zeros(2), lambda prompt, output, logits: logits - prompt[0], [7], [3]).tolist()
    [-7.0, -7.0]
    >>> process(np.ones(2), lambda output, logits, scale=5.0: scale * logits, [7], [3]).tolist()
    [5.0, 5.0]
    """
    given = [list(prompt_token_ids)] if _takes_prompt(processor) else []
    return np.array(processor(*given, list(output_token_ids), logits.copy()), dtype=np.float64)


def _takes_prompt(processor: Callable[..., object]) -> bool:
    """Has it three parameters that must be given by position? What cannot be asked has two."""
    try:
        parameters = inspect.signature(processor).parameters.values()
    except (TypeError, ValueError):  # some functions are not written in Python
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in parameters if one.kind in positional and one.default is one.empty]
    return len(needed) == 3


def penalise(
    logits: Float[np.ndarray, "V"],
    prompt_token_ids: TokenIds,
    output_token_ids: TokenIds,
    *,
    repetition_penalty: float = 1.0,
    frequency_penalty: float = 0.0,
    presence_penalty: float = 0.0,
) -> Float[np.ndarray, "V"]:
    """Rules 1 and 2.

    Token 0 is in the prompt; token 1 is in the output, twice; token 2 is in neither:

    >>> logits = np.array([4.0, -1.0, 3.0])
    >>> penalise(logits, [0], [1, 1], repetition_penalty=2.0).tolist()
    [2.0, -2.0, 3.0]
    >>> penalise(logits, [0], [1, 1], frequency_penalty=0.5).tolist()
    [4.0, -2.0, 3.0]
    >>> penalise(logits, [0], [1, 1], presence_penalty=0.5).tolist()
    [4.0, -1.5, 3.0]
    """
    penalised = logits.astype(np.float64)
    for token in {*prompt_token_ids, *output_token_ids}:
        if penalised[token] > 0:
            penalised[token] /= repetition_penalty
        else:
            penalised[token] *= repetition_penalty
    for token in set(output_token_ids):
        penalised[token] -= frequency_penalty * output_token_ids.count(token)
        penalised[token] -= presence_penalty
    return penalised


def keep_only(logits: Float[np.ndarray, "V"], allowed: Collection[int]) -> Float[np.ndarray, "V"]:
    """Rule 3: -inf for all other tokens.

    >>> keep_only(np.array([1.0, 2.0, 3.0]), {0, 2}).tolist()
    [1.0, -inf, 3.0]
    """
    kept = np.full(len(logits), -np.inf)
    for token in allowed:
        kept[token] = logits[token]
    return kept


def completing(output_token_ids: TokenIds, bad_words: Collection[TokenIds]) -> list[int]:
    """Rule 3: the tokens that would make a bad word whole.

    >>> completing([7, 1, 2], [[5], [1, 2, 3], [2, 4], [2, 1, 6]])
    [5, 3, 4]
    """
    output = list(output_token_ids)
    last_tokens = []
    for *beginning, last in bad_words:
        if output[len(output) - len(beginning) :] == beginning:
            last_tokens.append(last)
    return last_tokens
