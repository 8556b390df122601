"""The model of these tests: what a sequence says depends on its tokens, and on nothing else.

So the whole future of a request is known when it is added, and an output that depends on company,
chunks or preemption shows. `digest(n)` stands for what the KV cache holds after n tokens.

>>> said = Said([3, 4], voice=0, salt=0)
>>> said.token(0), said.token(5) in range(VOCABULARY), said.digest(2) == said.digest(3)
(3, True, False)
>>> after(said.digest(1), 4) == said.digest(2)
True
"""

from collections.abc import Sequence

VOCABULARY = 6
EOS = 1


def after(digest: int, token: int) -> int:
    """The digest of a sequence that is one token longer."""
    return hash((digest, token))


class Said:
    """One sequence without an end: its prompt, and what the model says behind it.

    Args:
        voice: Sequences with another voice say other things behind equal tokens.
        salt: What else the cached keys and values depend on: an adapter, a cache salt.
    """

    def __init__(self, prompt: Sequence[int], voice: int, salt: int) -> None:
        self._tokens, self._digests = list(prompt), [hash((17, salt))]
        self._voice = voice

    def token(self, position: int) -> int:
        while len(self._tokens) <= position:
            drawn = hash((self.digest(len(self._tokens)), self._voice, 5))
            self._tokens.append((drawn >> 7) % VOCABULARY)
        return self._tokens[position]

    def tokens(self, start: int, end: int) -> list[int]:
        return [self.token(position) for position in range(start, end)]

    def digest(self, length: int) -> int:
        while len(self._digests) <= length:
            token = self.token(len(self._digests) - 1)
            self._digests.append(after(self._digests[-1], token))
        return self._digests[length]
