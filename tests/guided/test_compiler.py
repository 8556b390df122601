"""Grammars and matchers without a model: a random walk along the allowed tokens parses."""

import itertools
import json
import random
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jax_engine import InvalidRequestError, StructuredOutputsParams
from jax_engine.core.sequence import Sequence
from jax_engine.guided.compiler import MAX_ITEMS_IN_ROW, GuideCompiler, check_size
from jax_engine.guided.guide import Guide, fill_masks
from jax_engine.sampling.masked_steps import as_booleans, num_words
from jax_engine.tokenization.tokenizer import load_tokenizer
from tests.support.byte_tokenizer import VOCAB, save_byte_tokenizer
from tests.support.json_schemas import conforms, schemas

EOS = 256
PADDED = VOCAB + 40
SEQ_IDS = itertools.count(1)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder)
    return load_tokenizer(folder)


@pytest.fixture(scope="module")
def compiler(tokenizer):
    return GuideCompiler(tokenizer, PADDED, {EOS})


def allowed_after(guide: Guide, tokens: list[int], vocab: int = PADDED, seq_id: int = 0):
    """The token ids that a sequence with this output may draw next."""
    seq = Sequence(0, [1, *tokens], 1, seq_id)
    (matcher,) = guide.matchers([seq], [seq])
    mask = np.full((3, num_words(vocab)), 7, np.uint32)
    fill_masks([(matcher, 1)], mask)
    assert not matcher.is_error(), matcher.get_error()
    assert (mask[[0, 2]] == 7).all()
    return np.nonzero(as_booleans(mask[1], vocab))[0].tolist()


def walk(guide: Guide, seed: int, ends=(EOS,), vocab: int = PADDED, most: int = 400):
    """Tokens of a random walk; None if it does not end."""
    rng, tokens, seq_id = random.Random(seed), [], next(SEQ_IDS)
    while len(tokens) < most:
        choices = allowed_after(guide, tokens, vocab, seq_id)
        assert choices and all(token < vocab for token in choices)
        # Ending is taken where it is allowed, often, so that most walks are short.
        ending = [token for token in choices if token in ends]
        token = rng.choice(ending if ending and rng.random() < 0.5 else choices)
        if token in ends:
            return tokens
        tokens.append(token)
    return None


@given(schema=schemas, seed=st.integers(0, 2**32), as_text=st.booleans())
def test_json_of_any_schema_parses_and_conforms(compiler, tokenizer, schema, seed, as_text) -> None:
    given_as = json.dumps(schema) if as_text else schema
    guide = compiler.guide(StructuredOutputsParams(json=given_as))
    tokens = walk(guide, seed)
    if tokens is not None:
        assert conforms(json.loads(tokenizer.decode(tokens)), schema)


@given(seed=st.integers(0, 2**32))
def test_json_object_gives_an_object(compiler, tokenizer, seed) -> None:
    tokens = walk(compiler.guide(StructuredOutputsParams(json_object=True)), seed)
    if tokens is not None:
        assert isinstance(json.loads(tokenizer.decode(tokens)), dict)


PIECES = st.sampled_from(["a", "[0-9]", "[^x]", "é", "(b|cd)", "[^é-ü]", r"\.", ".", "[a-cé]"])
REPEATS = st.sampled_from(["", "?", "*", "+", "{2}", "{1,3}"])
REGEXES = st.lists(st.tuples(PIECES, REPEATS).map("".join), min_size=1, max_size=4).map("".join)


@given(regex=st.lists(REGEXES, min_size=1, max_size=2).map("|".join), seed=st.integers(0, 2**32))
def test_the_whole_output_matches_the_regex(compiler, tokenizer, regex, seed) -> None:
    tokens = walk(compiler.guide(StructuredOutputsParams(regex=regex)), seed)
    if tokens is not None:
        assert re.fullmatch(regex, tokenizer.decode(tokens)), tokenizer.decode(tokens)


@example(choice=["\x7f", '\\"\n'], seed=0, pick=0)  # no such characters in Lark's strings
@given(
    choice=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    pick=st.integers(0, 3),
)
def test_the_output_is_one_of_the_choices_and_each_can_come(
    compiler, tokenizer, choice, seed, pick
) -> None:
    guide = compiler.guide(StructuredOutputsParams(choice=choice))
    assert tokenizer.decode(walk(guide, seed)) in choice
    wanted = list(choice[pick % len(choice)].encode())
    for at, token in enumerate([*wanted, EOS]):
        assert token in allowed_after(guide, wanted[:at])


SQL = """
start: select
select: "SELECT " ("DISTINCT ")? columns " FROM " table (" WHERE " any)? (" ORDER BY " columns)?
columns: "*" | column (", " column)*
column: NAME ("." NAME)? | FUNCTION "(" column ")"
table: NAME (" JOIN " NAME " ON " column " = " column)*
any: all (" OR " all)*
all: one (" AND " one)*
one: operand OPERATOR operand | "(" any ")" | operand " IN (" select ")" | "NOT " one
operand: column | STRING | NUMBER | "(" select ")"
OPERATOR: " = " | " < " | " > " | " <> " | " LIKE "
FUNCTION: "COUNT" | "SUM" | "MIN" | "MAX"
NAME: /[a-z_]+/
STRING: /'[^']*'/
NUMBER: /[0-9]+/
"""
GRAMMARS = [
    'start: "(" start ")" | "x"',
    'root ::= "(" root ")" | "x"',
    '?start: /x/ | "(" start ")"',
]


def ways(count: int) -> str:
    """Each "x" more has as many ways as there are alternatives, times those of the ones before."""
    alternatives = " | ".join("e" + " e" * (1 + n % 9) for n in range(count))
    return f'start: e\ne: {alternatives} | "x"'


def test_an_ambiguous_grammar_ends_before_it_takes_long(compiler) -> None:
    """Where it has too many open alternatives; one that is only recursive goes on."""
    for count, fails in ((1, False), (200, True)):
        guide = compiler.guide(StructuredOutputsParams(grammar=ways(count)))
        seq = Sequence(0, [1, *(b"x" * 9)], 1, next(SEQ_IDS))
        (matcher,) = guide.matchers([seq], [seq])
        fill_masks([(matcher, 0)], np.zeros((1, num_words(PADDED)), np.uint32))
        assert matcher.is_error() == fails
        if fails:
            assert f"max is {MAX_ITEMS_IN_ROW}" in matcher.get_error()


def test_grammars_of_honest_size_are_taken(compiler) -> None:
    """SQL with nested queries, written as people write it."""
    check_size(StructuredOutputsParams(grammar=SQL))
    guide = compiler.guide(StructuredOutputsParams(grammar=SQL))
    for seed in range(3):
        walk(guide, seed)  # asserts that the matcher has no error
    large = "start: e\ne: " + " | ".join(f'e "{n}" e' for n in range(300))
    with pytest.raises(InvalidRequestError, match=r"grammar size .* too big"):
        check_size(StructuredOutputsParams(grammar=large))
    check_size(StructuredOutputsParams(json={"enum": [f"value {n}" for n in range(2000)]}))


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_grammars_in_lark_and_in_ebnf(compiler, tokenizer, grammar) -> None:
    guide = compiler.guide(StructuredOutputsParams(grammar=grammar))
    for seed in range(20):
        text = tokenizer.decode(walk(guide, seed))
        depth = len(text) // 2
        assert text == "(" * depth + "x" + ")" * depth


def test_a_complete_output_can_only_end(compiler) -> None:
    guide = compiler.guide(StructuredOutputsParams(regex="ab|abc"))
    assert allowed_after(guide, [*b"a"]) == [*b"b"]
    assert allowed_after(guide, [*b"ab"]) == [*b"c", EOS]
    assert allowed_after(guide, [*b"abc"]) == [EOS]


def test_all_ends_count_that_the_tokenizer_knows(tokenizer) -> None:
    for ends, wanted in (({EOS, 0}, [0, EOS]), ({EOS, PADDED - 1, PADDED + 7}, [EOS])):
        guide = GuideCompiler(tokenizer, PADDED, ends).guide(StructuredOutputsParams(regex="a"))
        assert allowed_after(guide, [*b"a"]) == wanted


@given(
    outputs=st.lists(st.lists(st.sampled_from(b"ab"), max_size=12), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
)
def test_forks_go_on_where_their_parents_were(compiler, outputs, order) -> None:
    """Sequences come and go as beams do; each mask is that of a matcher of its own."""
    params = StructuredOutputsParams(regex="(a|bb|aba)*c")
    guide = compiler.guide(params)
    for i, output in enumerate(outputs):
        own = compiler.guide(params)
        valid = len(output)
        while valid and not _is_prefix(bytes(output[:valid])):
            valid -= 1
        seq = Sequence(0, [1, *output[:valid]], 1, i)
        alive = [seq] + [Sequence(0, [1], 1, j) for j in range(i) if order.random() < 0.5]
        (matcher,) = guide.matchers([seq], alive)
        mask = np.zeros((2, num_words(PADDED)), np.uint32)
        (fresh,) = own.matchers([seq], [seq])
        fill_masks([(matcher, 0), (fresh, 1)], mask)
        assert np.array_equal(mask[0], mask[1])
        assert len(guide._progress) <= len(alive)


def _is_prefix(data: bytes) -> bool:
    """Whether data begins a text of (a|bb|aba)*c: a run of b is odd only within aba."""
    return bool(re.fullmatch(rb"(a|bb|aba)*(b|ab)?", data))


MANY = {"type": "string", "enum": [f"v{i}" for i in range(50)]}
BAD = [
    ({"json": "{"}, "valid grammar"),
    ({"json": {"type": "nothing"}}, "nothing"),
    ({"json": "3"}, "object or boolean"),
    ({"json": {"type": "integer", "minimum": 3, "maximum": 2}}, "minimum"),
    ({"regex": "(("}, "regex"),
    ({"grammar": "root ::= missing"}, "missing"),
    ({"grammar": "start: missing"}, "missing"),
    ({"grammar": "?"}, "valid grammar"),
    # A value that is itself: no output ever ends.
    ({"json": {"$ref": "#"}}, "# needs another # in it, and so on without end"),
    (
        {
            "json": {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            }
        },
        "without end",
    ),
    ({"json": {"allOf": [{"$ref": "#"}]}}, "without end"),
    ({"grammar": "start: a\na: b\nb: a"}, "without end"),
    ({"json": {"$ref": "#/$defs/c"}}, "Pointer '/\\$defs/c' does not exist"),
    ({"json": {"$ref": "https://example.org/x"}}, "https://example.org/x"),
    ({"json": '{"a":' * 5000 + "1" + "}" * 5000}, "nested too deeply: use fewer levels"),
    ({"json": '{"properties":{"a":' * 100 + "{}" + "}}" * 100}, "nested too deeply"),
    ({"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}, "nested too deeply"),
    ({"grammar": "start: " + "(" * 5000 + '"a"' + ")" * 5000}, "too deeply nested"),
    ({"regex": "(" * 5000 + "a" + ")" * 5000}, r"^.{1,700}$"),
    (
        {"json": {"type": "object", "properties": {f"p{i}": MANY for i in range(1000)}}},
        "too large: use fewer properties",
    ),
]


@pytest.mark.parametrize(("params", "words"), BAD)
def test_a_bad_grammar_is_an_error_in_llguidance_s_words(compiler, params, words) -> None:
    with pytest.raises(InvalidRequestError, match=words) as error:
        compiler.guide(StructuredOutputsParams(**params))
    assert "structured_outputs" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("choice", [[], "abc", ["a", ""], ["a", 3], 3])
def test_a_choice_is_a_list_of_texts(choice) -> None:
    with pytest.raises(InvalidRequestError, match=r"structured_outputs\.choice"):
        StructuredOutputsParams(choice=choice)


@pytest.mark.parametrize("value", ["no", 1, {}])
def test_any_object_is_asked_for_with_true(value) -> None:
    with pytest.raises(InvalidRequestError, match="json_object must be True or False"):
        StructuredOutputsParams(json_object=value)


def test_what_is_empty_is_set_all_the_same(compiler, tokenizer) -> None:
    """A schema without a rule takes any JSON; an empty regex an empty output."""
    guide = compiler.guide(StructuredOutputsParams(json={}, json_object=False))
    outputs = [tokens for tokens in (walk(guide, seed) for seed in range(20)) if tokens is not None]
    assert outputs
    for tokens in outputs:
        json.loads(tokenizer.decode(tokens))
    assert walk(compiler.guide(StructuredOutputsParams(regex="")), 0) == []
    with pytest.raises(InvalidRequestError, match="got none"):
        StructuredOutputsParams(json_object=False)
    with pytest.raises(InvalidRequestError, match="got json, regex"):
        StructuredOutputsParams(json={}, regex="")


def test_engines_that_cannot_be_guided_say_why(tokenizer) -> None:
    params = StructuredOutputsParams(regex="a")
    for args, words in (
        ((None, VOCAB, {EOS}), "no tokenizer"),
        ((tokenizer, VOCAB, set()), "end-of-sequence"),
        ((tokenizer, 100, {5}), "this model's tokenizer"),
    ):
        with pytest.raises(InvalidRequestError, match=words):
            GuideCompiler(*args).guide(params)


def test_a_grammar_is_compiled_once(compiler) -> None:
    params = StructuredOutputsParams(json={"type": "array", "items": {"type": "null"}})
    first = compiler.guide(params)
    walk(first, 0)
    hits = compiler._compile.cache_info().hits
    assert allowed_after(compiler.guide(params), []) == [ord("[")]
    assert compiler._compile.cache_info().hits == hits + 1


@pytest.mark.model
@pytest.mark.slow
def test_a_real_tokenizer_from_a_gguf_file(smollm2_path) -> None:
    tokenizer = load_tokenizer(str(smollm2_path))
    vocab = tokenizer.vocab_size
    compiler = GuideCompiler(tokenizer, vocab, tokenizer.eos_token_ids)
    schema = {
        "type": "object", "properties": {"name": {"type": "string", "maxLength": 9}},
        "required": ["name"], "additionalProperties": False,
    }  # fmt: skip
    guide, ended = compiler.guide(StructuredOutputsParams(json=schema)), 0
    for seed in range(5):
        tokens = walk(guide, seed, tokenizer.eos_token_ids, vocab, most=100)
        if tokens is not None:
            ended += 1
            assert len(json.loads(tokenizer.decode(tokens))["name"]) <= 9
    assert ended
