"""Bugs in how sampling parameters are checked and read."""

from tests.mutation.planting import Mutant, plant

VIEW_TESTS = ("tests/properties/test_client_view.py",)
PARAMS_TESTS = ("tests/engine/test_parameters_pair.py", "tests/engine/test_sampling_params.py")
SAMPLER_TESTS = ("tests/sampling/test_sampler.py",)
ROW_TESTS = ("tests/sampling/test_inputs.py",)

MUTANTS: list[Mutant] = [
    *plant("jax_engine/sampling_params.py", PARAMS_TESTS,
        ("GREEDY_EPS = 1e-5", "GREEDY_EPS = 1e-4", "small temperatures are greedy"),
        ("return deepcopy(self, {id(one): one for one in self.logits_processors or ()})",
         "return copy(self)", "a clone shares its lists"),
        ("return wanted or self.is_ranked", "return wanted or self.use_beam_search",
         "best_of without the sums that it compares"),
        ("high=1.0, open_low=True", "high=1.0", "top_p=0 is accepted"),
    ),
    *plant("jax_engine/sampling_params.py", PARAMS_TESTS,
        ("if self.is_filter and self.packed(value) != self.packed(self.default):",
         "if self.is_filter and value != self.default:", "top_k=-1 is refused with beams"),
        ("int(self.low), high)", "int(self.low) + 1, high)", "the least integer is refused"),
    ),
    *plant("jax_engine/sampling_params.py", PARAMS_TESTS,
        ("self.stop_token_ids = list(self.stop_token_ids or [])",
         "self.stop_token_ids = list(self.stop_token_ids or [])[:1]",
         "only the first stop token stops"),
    ),
    *plant("jax_engine/sampling_params.py", PARAMS_TESTS,
        ("min(100.0, max(-100.0, float(bias)))", "float(bias)", "biases are not clipped"),
        ("token_id = int(token)", "token_id = token", "JSON's keys are refused"),
        ("params.greedy and params.num_samples > 1", "params.greedy and params.n > 1", "best_of"),
        ("params.logprobs not in (None, len(tokens))", "params.logprobs is not None",
         "logprobs is refused beside its own number of tokens"),
    ),
    *plant("jax_engine/sampling_params.py", SAMPLER_TESTS,
        ("high=1.0, open_low=True, is_filter=True",
         "high=1.0, open_low=True, is_filter=True, packed=lambda p: p if p < 0.999 else 1.0",
         "a top_p between 0.999 and 1 is off"),
    ),
    *plant("jax_engine/sampling_params.py", ROW_TESTS,
        ("low=0.0, packed=_packed_temperature", "low=0.0", "a hundred-thousandth draws"),
    ),
    *plant("jax_engine/engine/requests/request.py", VIEW_TESTS,
        ("own = copy(params)", "own = params", "a request changes with its caller's parameters"),
    ),
]  # fmt: skip
