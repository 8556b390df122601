"""Makes a guide from `StructuredOutputsParams`; llguidance reads tokenizer and grammar."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from jax_engine.errors import InvalidRequestError, need
from jax_engine.guided.guide import Guide, reason_in, reason_of
from jax_engine.guided.json_schema import check_ends, check_schema, check_schemas_of, closed
from jax_engine.guided.lark_grammar import Lark, in_slashes, quoted
from jax_engine.guided.structural_tag import BadTag, lark_of
from jax_engine.sampling_params import StructuredOutputsParams
from jax_engine.tokenization.tokenizer import Tokenizer

if TYPE_CHECKING:  # imported at the first guided request: most processes have none
    from llguidance import LLMatcher, LLTokenizer

COMPILED_GRAMMARS = 64  # kept, since requests repeat grammars
# An ambiguous grammar takes seconds for each token, and all requests wait. The time grows with the
# alternatives that are open at a place. Lark's %json has many by its nature, and no such ambiguity.
MAX_ITEMS_IN_ROW = 500
MAX_GRAMMAR_SIZE = 500  # symbols: of a grammar that someone sends over a network
# What `(a{1000}){1000}` may cost before it is left to the tokens that are drawn: a seventh of a
# second, and not nine.
LEXER_FUEL = 200_000
EBNF_RULE = re.compile(r"^\s*[\w-]+\s*::=", re.MULTILINE)


class GuideCompiler:
    """Makes the guides of one engine's requests.

    Args:
        vocab_size: Width of the model's logits, padding included.
        eos_token_ids: Tokens that end a complete output; those unknown to the tokenizer are left
            out.
    """

    def __init__(
        self, tokenizer: Tokenizer | None, vocab_size: int, eos_token_ids: Iterable[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        known = min(vocab_size, tokenizer.vocab_size if tokenizer else 0)
        self._eos_token_ids = sorted(token for token in eos_token_ids if token < known)
        self._compile = lru_cache(COMPILED_GRAMMARS)(self._compile_grammar)

    def guide(self, params: StructuredOutputsParams) -> Guide:
        """
        Raises:
            InvalidRequestError: The grammar is invalid (with llguidance's reason), or the tokenizer
                is missing, has no end-of-sequence token, or cannot be guided.
            MissingPackageError: The `llguidance` package is not installed.
        """
        if self._tokenizer is None:
            raise InvalidRequestError(
                "structured_outputs need text, but the engine has no tokenizer "
                "(skip_tokenizer_init=True)"
            )
        if not self._eos_token_ids:
            raise InvalidRequestError(
                "structured_outputs end with an end-of-sequence token, but the model has none"
            )
        need("llguidance", "structured_outputs")
        grammar = grammar_of(params, self._tokenizer)
        written = params.grammar is not None or params.structural_tag is not None
        plain = written and "%json" not in grammar
        return Guide(self._compile(grammar, MAX_ITEMS_IN_ROW if plain else None))

    def _compile_grammar(self, grammar: str, max_items_in_row: int | None) -> "LLMatcher":
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(max_items_in_row=max_items_in_row, initial_lexer_fuel=LEXER_FUEL)
        matcher = LLMatcher(self._vocabulary, grammar, log_level=0, limits=limits)
        # Endless recursion of rules shows only when a first token is asked for.
        for one in (matcher, _asked_for_a_token(matcher)):
            if one.is_error():
                reason = reason_of(one)
                raise InvalidRequestError(f"structured_outputs must be a valid grammar: {reason}")
        return matcher

    @cached_property
    def _vocabulary(self) -> "LLTokenizer":
        """The model's tokens as a tree of bytes: half a second for 50,000 tokens."""
        from llguidance import LLTokenizer

        assert self._tokenizer is not None
        text = self._tokenizer.backend.to_str()
        try:
            return LLTokenizer(text, n_vocab=self._vocab_size, eos_token=self._eos_token_ids)
        except ValueError as error:
            raise InvalidRequestError(
                f"structured_outputs do not work with this model's tokenizer: {error}"
            ) from error


def _asked_for_a_token(matcher: "LLMatcher") -> "LLMatcher":
    """A copy that was asked for a token: an error in the matcher itself would be final."""
    copy = matcher.deep_copy()
    if not copy.is_error():
        copy.compute_bitmask()
    return copy


def check_size(params: StructuredOutputsParams) -> None:
    """Refuses a grammar of more than MAX_GRAMMAR_SIZE symbols; schemas and the like may be larger.

    Those within a structural tag are checked one by one.

    Raises:
        InvalidRequestError: It is too large, or invalid.
        MissingPackageError: The `llguidance` package is not installed.
    """
    if params.grammar is None and params.structural_tag is None:
        return
    need("llguidance", "structured_outputs")
    if params.structural_tag is not None:
        _tag_rule(Lark(None), params, check=check_size)
        return
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(max_grammar_size=MAX_GRAMMAR_SIZE, initial_lexer_fuel=LEXER_FUEL)
    found = LLMatcher.validate_grammar(grammar_of(params), limits=limits)
    if found:
        raise InvalidRequestError(f"structured_outputs must be a valid grammar: {reason_in(found)}")


def rule_of(lark: Lark, params: StructuredOutputsParams) -> str:
    """The rule of the outputs that a request's grammar allows, within another grammar.

    Raises:
        InvalidRequestError: As `grammar_of`.
    """
    if params.structural_tag is not None:
        return _tag_rule(lark, params)
    if params.json is not None:
        schema = json.loads(params.json) if isinstance(params.json, str) else params.json
        return lark.rule(f"%json {json.dumps(closed(schema))}")
    if params.json_object:
        return lark.rule('%json {"type": "object"}')
    if params.choice is not None:
        return lark.rule(" | ".join(map(quoted, params.choice)))
    if params.regex is not None:
        return lark.rule(lark.terminal(f"/{in_slashes(params.regex)}/"))
    return lark.rule("%lark {\n" + grammar_of(params) + "\n}")  # EBNF becomes Lark


def _tag_rule(
    lark: Lark,
    params: StructuredOutputsParams,
    check: Callable[[StructuredOutputsParams], None] = lambda _: None,
) -> str:
    """The rule of a structural tag.

    Args:
        check: Is told of each grammar in it.
    """

    def inner(lark: Lark, text: str) -> str:
        grammar = StructuredOutputsParams(grammar=text)
        check(grammar)
        return rule_of(lark, grammar)

    assert params.structural_tag is not None
    try:
        return lark_of(params.structural_tag, lark, inner)
    except (BadTag, RecursionError) as error:
        message = f"structured_outputs must be a valid structural tag: {reason_in(str(error))}"
        raise InvalidRequestError(message) from error


def grammar_of(params: StructuredOutputsParams, tokenizer: Tokenizer | None = None) -> str:
    """The request's grammar in llguidance's own form.

    Args:
        tokenizer: Knows which markers of a structural tag are tokens; None: none is.

    Raises:
        InvalidRequestError: The schema is not JSON or never ends, or the grammar cannot be read.
    """
    from llguidance import grammar_from

    try:
        if params.structural_tag is not None:
            lark = Lark(tokenizer)
            return grammar_from("lark", lark.text(_tag_rule(lark, params)))
        if params.json is not None:
            schema = json.loads(params.json) if isinstance(params.json, str) else params.json
            check_schema(schema)
            schema = closed(schema)
            check_ends(schema)
            return grammar_from("json_schema", json.dumps(schema))
        if params.json_object:
            return grammar_from("json_schema", '{"type": "object"}')
        if params.regex is not None:
            return grammar_from("regex", params.regex)
        if params.choice is not None:
            return grammar_from("regex", "|".join(map(_literal, params.choice)))
        text = params.grammar or ""
        check_schemas_of(text)
        return grammar_from("gbnf" if EBNF_RULE.search(text) else "lark", text)
    except InvalidRequestError:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        reason = reason_in(str(error))
        raise InvalidRequestError(
            f"structured_outputs must be a valid grammar: {reason}"
        ) from error


def _literal(text: str) -> str:
    """A regex that matches exactly this text."""
    plain = [
        char if char.isascii() and char.isalnum() else f"\\x{{{ord(char):x}}}" for char in text
    ]
    return "".join(plain)
