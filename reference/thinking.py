"""When reasoning has taken enough tokens: the rule of `thinking_token_budget`.

A model that reasons writes a marker, its reasoning, another marker, then its answer. A request may
say how many tokens the reasoning may have. When they are spent, the closing marker is written for
the model, token by token.

1. A prompt leaves reasoning open if its last begin marker has no end marker behind it. A model that
   always begins with reasoning (`inside`) has it open behind every prompt, but for one that ends
   with an end marker, or with that and `blank` tokens.
2. Otherwise reasoning begins behind the first begin marker that the output completes.
3. It ends with the first end marker that begins and ends behind that. Later reasoning is free.
4. Its tokens count from the marker on, those of the prompt, and those of an end marker that is not
   whole yet. Once there are as many as the budget, the output is to go on with `close`: behind as
   much of it as the tokens since then end with, for a grammar may have put it off.

>>> rule = Thinking(budget=2, begins=[(1,)], ends=[(2, 3)], close=(2, 3))
>>> [rule.forced([1], output) for output in ([], [7], [7, 7], [7, 7, 2], [7, 7, 2, 3], [2, 3, 5])]
[None, None, 2, 3, None, None]
>>> rule.forced([1], [7, 7, 5]), rule.forced([1], [7, 7, 5, 2])
(2, 3)

Two begin markers in the output, of which the first counts; the marker may begin in the prompt:

>>> pair = Thinking(budget=0, begins=[(1, 1)], ends=[(2,)], close=(2,))
>>> [pair.forced([1], output) for output in ([], [1], [1, 2], [1, 2, 1, 1])]
[None, 2, None, None]

A prompt that has spent the budget already, and one whose reasoning has ended:

>>> rule.forced([1, 7, 7, 7], []), rule.forced([1, 7, 2, 3], [7, 7, 7])
(2, None)

A model that begins with reasoning, unless the prompt has closed it; 9 is a line break:

>>> always = Thinking(budget=1, begins=[(1,)], ends=[(2,)], close=(2,), inside=True, blank={9})
>>> always.forced([7], [7]), always.forced([7, 2, 9], [7]), always.forced([2, 7], [7])
(2, None, 2)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, kw_only=True)
class Thinking:
    """The markers of a model as tokens, and a request's budget.

    Attributes:
        begins, ends: Each way to write a marker.
        close: Ends with one of `ends`.
    """

    budget: int
    begins: Sequence[Sequence[int]]
    ends: Sequence[Sequence[int]]
    close: Sequence[int]
    inside: bool = False
    blank: Collection[int] = ()

    def forced(self, prompt: Sequence[int], output: Sequence[int]) -> int | None:
        """The token that must come next; None: any may."""
        tokens = np.array([*prompt, *output])
        begin = self._begin(tokens, len(prompt))
        if begin is None:
            return None
        ends = [end for start, end in spans(tokens, self.ends) if start >= begin]
        if any(end > max(begin, len(prompt)) for end in ends):
            return None
        due = max(begin + self.budget, len(prompt))
        if len(tokens) < due:
            return None
        since, close = tokens[due:].tolist(), list(self.close)
        written = [n for n in range(len(close)) if since[len(since) - n :] == close[:n]]
        return close[max(written)]

    def _begin(self, tokens: Int[np.ndarray, "L"], prompt_len: int) -> int | None:
        """Rules 1 and 2: how many tokens stand before reasoning and its marker, these included."""
        prompt = tokens[:prompt_len]
        opened = max([end for _, end in spans(prompt, self.begins)], default=0)
        closed = max([end for _, end in spans(prompt, self.ends)], default=0)
        if opened > closed:
            return opened
        is_closed = closed > 0 and all(token in self.blank for token in prompt[closed:])
        if self.inside and not is_closed:
            return prompt_len
        later = [end for _, end in spans(tokens, self.begins) if end > prompt_len]
        return min(later, default=None)


def spans(tokens: Int[np.ndarray, "L"], markers: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Where a marker stands: its first place, and the one behind it.

    >>> spans(np.array([1, 1, 1, 2]), [(1, 1), (2,)])
    [(0, 2), (1, 3), (3, 4)]
    """
    found = []
    for marker in markers:
        if len(marker) <= len(tokens):
            windows = np.lib.stride_tricks.sliding_window_view(tokens, len(marker))
            places = np.flatnonzero((windows == np.array(marker)).all(axis=1))
            found += [(int(place), int(place) + len(marker)) for place in places]
    return found
