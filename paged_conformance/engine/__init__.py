"""Whole engines: requests in, tokens out, many at once. What an adapter may expect and must give.

A target is a factory: `make(**sizes)` returns an engine that has served nobody, with the methods of
`protocol.Engine`. (Where a new one takes seconds, it may be one that serves nobody and has an empty
cache.) The model is the target's own, so results are compared with the target's own for the same
request alone. `make.capabilities` has words of `CAPABILITIES`; `make.sizes` has these numbers:

    vocabulary      tokens are 0 to vocabulary - 1 (needed)
    max_len         tokens of a prompt and its output together (needed)
    eos             the token that ends an output; -1 or left out: none
    max_tokens      the longest output that is asked for (12)
    block_size      tokens of a KV block, for the lengths that are drawn (16)
    min_block       the least `block_size` that `make` is given
    max_block       the largest one
    min_budget      the least `batch_tokens` that `make` is given
    adapters        how many adapters there are: requests name 1 to that many, 0 is none
    tie_millionths  two tokens whose log-probabilities differ by less count as a tie (1000)
    patience        seconds without an output in which a busy engine counts as hung (10)
    quiet_steps     or as many steps without one (10000)

What is expected:

- Arguments are passed by name; all values are plain JSON. Nobody calls two methods at once.
- `add` accepts a request, or raises `Refused`: for any reason, but then nothing is left of it. Any
  other exception of any method is a failure.
- A name is not used again before its request's end was told. It is used again afterwards only if
  the target has the word `names`.
- After `abort` has returned, at most last outputs of its requests may come, each sample's with a
  finish reason; an engine that says nothing more of them is right as well. Names that have ended,
  or never were, may be in the list.
- `step` may return nothing, or any number of outputs, several of one sample among them, each with
  any number of new tokens. The engine may work in a thread: then `step` waits a little.
- `is_busy` is true while something has not been told. An idle engine has told every end.
- Outputs are cumulative: all tokens so far. Those of a request of kind "delta" have what is new,
  and one of kind "final" has its end only.
- A sample ends with the token that ends it (an engine may leave a stop token out of the tokens), at
  max_tokens, or where max_len is reached. Its end may come with the last token or later.
- Before min_tokens no token comes that would end the sample. One that is ignored may come or not.
- Which request is served first, who is preempted, and how long anything takes is the engine's.

Parameters of a request; a target without the word in brackets never gets one:

    max_tokens                             always there
    temperature                            0 or left out: greedy [draws, or seeds with seed]
    seed                                   [seeds]
    top_k, top_p                           [filters]
    n                                      [samples]
    min_tokens                             [min_tokens]
    stop_token_ids                         [stop_ids]
    stop                                   [stops]
    include_stop                           [include_stop]
    ignore_eos                             [eos]
    logprobs                               how many of the most probable tokens [logprobs]
    repetition_penalty, presence_penalty,
    frequency_penalty                      [penalties]
    logit_bias                             token as text, and what is added [bias]
    priority                               lower is sooner [priorities]
    kind                                   "cumulative", "delta" or "final" [kinds]
    adapter                                [adapters]
    beams                                  [beams]

Arguments of `make`, each of them only with the word in brackets:

    block_size          of a block, in tokens [pools]
    tokens              what the pool has room for [pools]
    seqs, batch_tokens  of one step, at most [budgets]
    prefix_cache        whether it is on [prefix_cache]
    speculation         guesses a step [speculation]
    draws, samples      what requests will have, if an engine must know it beforehand [modes]
"""

from paged_conformance.engine import company, ends, life, oracle
from paged_conformance.engine.alone import numbers as numbers
from paged_conformance.properties import Property

PROPERTIES: tuple[Property, ...] = (
    company.COMPANY,
    company.SESSIONS,
    company.WARM,
    company.CROWDED,
    life.STORMS,
    life.EVERYTHING,
    company.ORDERS,
    company.CONTINUATIONS,
    company.BUDGETS,
    ends.STOPS,
    ends.FIRST_END,
    ends.LENGTHS,
    ends.STREAMS,
    ends.LOGPROBS,
    life.SEEDS,
    life.SAMPLES,
    life.PENALTIES,
    life.REFUSALS,
    company.NEUTRAL,
    company.SPECULATION,
    company.PRIORITIES,
    company.ADAPTERS,
    company.BEAMS,
    oracle.ORACLE,
)

CAPABILITIES: dict[str, str] = {
    "draws": "Requests may have a temperature.",
    "seeds": "A seed fixes what is drawn, whatever the company.",
    "filters": "Requests may have top_k and top_p.",
    "samples": "A request may have n outputs.",
    "greedy_samples": "A greedy request may have n outputs, which are equal.",
    "beams": "A request may be a beam search, which is deterministic.",
    "min_tokens": "A request may have min_tokens.",
    "stop_ids": "A request may have stop tokens.",
    "stops": "A request may have stop strings; the engine makes text.",
    "include_stop": "A stop string may be left in the text.",
    "eos": "A request may ignore the token that ends outputs.",
    "logprobs": "A request may ask for the most probable tokens of each place.",
    "penalties": "Requests may have penalties.",
    "bias": "Requests may have a logit bias.",
    "priorities": "Requests may have priorities.",
    "kinds": "A request may choose cumulative outputs, what is new, or its end only.",
    "adapters": "Requests may name adapters.",
    "names": "A name may be used again once its request's end was told.",
    "long_prompts": "Prompts may be as long as max_len, or they are refused.",
    "prefix_cache": "Blocks are kept for others; `make` takes prefix_cache, `flush` forgets them.",
    "sessions": "`rest` ends a batch of work; the engine keeps what it likes for the next one.",
    "state": "`state` has counts that are 0 when nothing is left of any request.",
    "pools": "`make` takes block_size and tokens.",
    "budgets": "`make` takes seqs and batch_tokens.",
    "speculation": "`make` takes speculation, a number of guesses.",
    "modes": "`make` must be told draws and samples beforehand.",
    "oracle_model": "`model` gives the model's sizes and weights, which the oracle can compute.",
}
