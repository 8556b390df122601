"""Bugs in how sampling parameters are checked and read."""

from tests.mutation.planting import Mutant, plant

VIEW_TESTS = ("tests/properties/test_client_view.py",)
PARAMS_TESTS = ("tests/engine/test_parameters_pair.py", "tests/engine/test_sampling_params.py")
SAMPLER_TESTS = ("tests/sampling/test_sampler.py",)
ROW_TESTS = ("tests/sampling/test_inputs.py",)

MUTANTS: list[Mutant] = [
    *plant(
        "jax_engine/sampling_params.py",
        PARAMS_TESTS,
        ("GREEDY_EPS = 1e-5", "GREEDY_EPS = 1e-4", "small temperatures are greedy"),
        ("if self.seed == -1:", "if self.seed == -2:", "-1 is a seed"),
        (
            "setattr(self, name, list(value))",
            "pass",
            "a shared mutable parameter: the caller's lists",
        ),
        (
            "return deepcopy(self, {id(one): one for one in self.logits_processors or ()})",
            "return copy(self)",
            "a clone shares its lists",
        ),
        (
            "if value is not None or name not in none_is_default",
            "if value is not None",
            "from_optional takes max_tokens=None for 16",
        ),
        (
            "[self.stop] if isinstance(self.stop, str) else list(self.stop)",
            "list(self.stop)",
            "each character of a stop string stops",
        ),
        (
            "return wanted or self.is_ranked",
            "return wanted or self.use_beam_search",
            "best_of without the sums that it compares",
        ),
        (
            "RequestOutputKind.DELTA and not self.use_beam_search",
            "RequestOutputKind.DELTA",
            "beams give deltas",
        ),
        ("self.n if self.best_of is None else self.best_of", "self.n", "best_of is ignored"),
        ("high=1.0, open_low=True", "high=1.0", "top_p=0 is accepted"),
    ),
    *plant(
        "jax_engine/sampling_params.py",
        PARAMS_TESTS,
        (
            "if self.is_filter and self.packed(value) != self.packed(self.default):",
            "if self.is_filter and value != self.default:",
            "top_k=-1 is refused with beams",
        ),
        ("self.is_filter and ", "", "beams refuse a temperature"),
        ("int(self.low), high)", "int(self.low) + 1, high)", "the least integer is refused"),
    ),
    *plant(
        "jax_engine/sampling_params.py",
        PARAMS_TESTS,
        (
            "self.stop_token_ids = list(self.stop_token_ids or [])",
            "self.stop_token_ids = list(self.stop_token_ids or [])[:1]",
            "only the first stop token stops",
        ),
    ),
    *plant(
        "jax_engine/sampling_params.py",
        PARAMS_TESTS,
        ("params.min_tokens > params.max_tokens", "False", "min_tokens beyond max_tokens"),
        (
            "params.gives_deltas and params.num_samples > params.n",
            "params.gives_deltas and params.num_samples >= params.n",
            "deltas with n=best_of are refused",
        ),
        ("-(2**63), 2**64 - 1)", "-(2**63), 2**63 - 1)", "seeds of 64 bits are refused"),
        ("min(100.0, max(-100.0, float(bias)))", "float(bias)", "biases are not clipped"),
        ("token_id = int(token)", "token_id = token", "JSON's keys are refused"),
        ("params.greedy and params.num_samples > 1", "params.greedy and params.n > 1", "best_of"),
        ("params.stop_strings and not params.detokenize", "False", "stop strings without text"),
        (
            "params.logprobs not in (None, len(tokens))",
            "params.logprobs is not None",
            "logprobs is refused beside its own number of tokens",
        ),
    ),
    *plant(
        "jax_engine/sampling/sampling_inputs.py",
        SAMPLER_TESTS,
        ("(seed >> 32) & 0xFFFFFFFF", "0", "the upper bits of a seed do not count"),
    ),
    *plant(
        "jax_engine/sampling_params.py",
        SAMPLER_TESTS,
        (
            "high=1.0, open_low=True, is_filter=True",
            "high=1.0, open_low=True, is_filter=True, packed=lambda p: p if p < 0.999 else 1.0",
            "a top_p between 0.999 and 1 is off",
        ),
    ),
    *plant(
        "jax_engine/sampling_params.py",
        ROW_TESTS,
        ("low=0.0, packed=_packed_temperature", "low=0.0", "a hundred-thousandth draws"),
        ("min(max(top_k, 0), 2**31 - 1)", "max(top_k, 0)", "a top_k of more than 32 bits"),
    ),
    *plant(
        "jax_engine/engine/request.py",
        VIEW_TESTS,
        ("own.__post_init__()", "pass", "what was changed since is not checked, nor copied"),
        ("own = copy(params)", "own = params", "a request changes with its caller's parameters"),
    ),
]
