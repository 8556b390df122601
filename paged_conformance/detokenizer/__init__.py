"""Detokenizers with stop strings: tokens come one step after the other, text goes out.

A target is one output. `make(kind=.., pieces=.., special=..)` makes it for a tiny vocabulary:
`pieces[i]` is token i as vocabulary files write it, for the kind "byte-level" (GPT-2: each byte is
a character) or "byte-fallback" (SentencePiece: "\\u2581" is a space, "<0x41>" a byte). `special`
are the ids of special tokens. A target without the capability of a kind is not given it.

Methods take keyword arguments, and plain JSON values come and go:

- **open**(`prompt`, `stop`, `include_stop`, `min_tokens`, `skip_special_tokens`): begins an output
  behind these prompt tokens (at least one). `stop` are strings, none empty. The first `min_tokens`
  tokens complete no stop string, but one may begin among them.
- **add**(`tokens`, `ends`): the tokens of a step, at least one. `ends` says that the last of them
  is a stop token: it has no text, unless `include_stop`. Returns `{"text": .., "stop": ..}`: the
  text that may be shown now and was not before, and the stop string that these tokens completed, or
  None. Nothing is added after a stop string or a stop token.
- **finish**(): returns the rest of the text.

The pieces, joined, are the text of the output. It ends before its stop string, or behind it with
`include_stop`. Without the capability `first_stop` it may be any of the stop strings that the same
call completes; with it the one that is complete first, of those the longest. What is shown is never
taken back, so nothing of a stop string is shown before it is certain that it does not stop.

Prompts end with whole characters. Outputs have bytes that are no characters only where the target
has `unicode`: U+FFFD stands for each longest part that might have begun a character. Bytes at the
end that begin a character may be left out, unless the target has `flush`.
"""

from paged_conformance.detokenizer.holds import PROPERTIES
from paged_conformance.detokenizer.words import CAPABILITIES

__all__ = ["CAPABILITIES", "PROPERTIES"]
