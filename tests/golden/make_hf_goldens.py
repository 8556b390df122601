"""Asks PyTorch transformers what the tiny checkpoints and SmolLM2 answer; writes the goldens.

Needs PyTorch, whose small CPU build installs on Python 3.11 only, so it runs apart from the tests:

    python3.11 -m venv /tmp/torch311
    /tmp/torch311/bin/pip install torch==2.13.0 transformers accelerate gguf numpy
    /tmp/torch311/bin/python -m tests.golden.make_hf_goldens tiny beam_search

writes tests/golden/tiny.npz and beam_search.json. With SmolLM2-135M-Instruct.Q4_1.gguf (whose path
`jax-engine pull` writes) it writes smollm2.json, with
gemma-3-270m-q4_k_m.gguf gemma3_270m.json (tests/models/test_real_models.py has where it is from).
"""

import itertools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.golden import tiny_checkpoints as tiny

HERE = Path(__file__).parent
PROMPTS = [
    "Hello, my name is",
    "The president of the United States is",
    "The capital of France is",
    "The future of AI is",
]
CHAT = [{"role": "user", "content": "What is the capital of France?"}]
NUM_TOKENS = 32
NUM_BEAM_TOKENS = 10
NOISE = 1e-4  # what is added to log-probabilities must not change which beams win
BEAM_CASES = [("plain", 1, width) for width in (2, 3, 4, 5)]  # checkpoint, ends, width
BEAM_CASES += [("mistral_window", 2, width) for width in (2, 3, 4, 5)]
BEAM_CASES += [("llama3", 0, 3), ("plain", 1, 1), ("mistral_window", 2, 1)]


def tiny_model(config: dict[str, Any]) -> Any:
    """A transformers model with the weights of the tiny checkpoint."""
    kinds = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    }
    config_type, model_type = kinds[config["model_type"]]
    fields = {k: v for k, v in config.items() if k not in ("architectures", "model_type")}
    model = model_type(config_type(**fields, attn_implementation="eager")).eval()
    tensors = {name: torch.from_numpy(w) for name, w in tiny.weights(config).items()}
    if config["tie_word_embeddings"]:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    model.load_state_dict(tensors, strict=True)
    return model


def greedy(model: Any, ids: list[int], count: int) -> tuple[list[int], float]:
    """`count` tokens, whatever they are, and the least margin between the best two logits."""
    tokens, margin, past = list(ids), float("inf"), None
    step = torch.tensor([tokens])
    for _ in range(count):
        out = model(step, past_key_values=past, use_cache=True)
        best = torch.topk(out.logits[0, -1], 2).values
        margin = min(margin, float(best[0] - best[1]))
        tokens.append(int(out.logits[0, -1].argmax()))
        past, step = out.past_key_values, torch.tensor([tokens[-1:]])
    return tokens[len(ids) :], margin


def make_tiny() -> None:
    arrays: dict[str, np.ndarray] = {}
    for name, config in tiny.CONFIGS.items():
        model = tiny_model(config)
        arrays[f"{name}.logits"] = model(torch.tensor([tiny.PROMPT])).logits[0, tiny.ROWS].numpy()
        if name in tiny.GREEDY:
            tokens, margin = greedy(model, tiny.PROMPT, tiny.NUM_GREEDY)
            arrays[f"{name}.greedy"] = np.array(tokens, np.int32)
            print(f"{name}: {tokens}, least margin {margin:.4f}")
    np.savez_compressed(HERE / "tiny.npz", **arrays)


def make_smollm2(gguf: Path) -> None:
    options = {"gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()
    chat = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    answers = []
    for prompt in [*PROMPTS, chat]:
        ids = tokenizer(prompt, add_special_tokens=False).input_ids
        tokens, margin = greedy(model, ids, NUM_TOKENS)
        text = tokenizer.decode(tokens, skip_special_tokens=False)
        print(repr(prompt), "->", repr(text), f"least margin {margin:.4f}")
        answers.append(
            {"prompt": prompt, "prompt_ids": ids, "ids": tokens, "text": text, "margin": margin}
        )
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}, float32"
    golden = {"made_with": made_with, "chat": CHAT, "answers": answers}
    (HERE / "smollm2.json").write_text(json.dumps(golden, indent=1) + "\n")


REAL = {"gemma-3-270m-q4_k_m.gguf": "gemma3_270m.json"}
REAL_PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little robot who",
    "def fibonacci(n):\n    ",
    "Die Hauptstadt von Deutschland ist",
    "1, 2, 3, 4, 5,",
    "Water boils at a temperature of",
]
NUM_REAL_TOKENS = 24
NUM_TOP = 8


def make_real(gguf: Path) -> None:
    """Prompts' and greedy tokens, and of each prompt's last logits the largest."""
    options = {"gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **options)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.float32, attn_implementation="eager", **options
    ).eval()
    answers = []
    for prompt in REAL_PROMPTS:
        ids = tokenizer(prompt).input_ids
        top = torch.topk(model(torch.tensor([ids])).logits[0, -1], NUM_TOP)
        tokens, margin = greedy(model, ids, NUM_REAL_TOKENS)
        print(repr(prompt), "->", repr(tokenizer.decode(tokens)), f"least margin {margin:.4f}")
        answers.append({"prompt": prompt, "prompt_ids": ids, "ids": tokens, "margin": margin})
        answers[-1] |= {"top_ids": top.indices.tolist(), "top_logits": top.values.tolist()}
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}, float32"
    lines = ",\n".join(json.dumps(answer) for answer in answers)
    golden = f'{{"made_with": "{made_with}", "file": "{gguf.name}", "answers": [\n{lines}\n]}}\n'
    (HERE / REAL[gguf.name]).write_text(golden)


class Noise(transformers.LogitsProcessor):
    """Random numbers on log-probabilities, as another order of summation might bring them."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + NOISE * (2 * torch.rand(scores.shape) - 1)


def beams(model: Any, prompt: list[int], width: int, eos_token_ids: list[int], **more: Any) -> Any:
    """(tokens, score) of each output, best first; the score is None for a width of 1: greedy."""
    ids = torch.tensor([prompt])
    options = {} if width == 1 else {"num_beams": width, "num_return_sequences": width} | more
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NUM_BEAM_TOKENS,
        do_sample=False,
        eos_token_id=eos_token_ids or None,
        pad_token_id=eos_token_ids[0] if eos_token_ids else None,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    scores = [None] if width == 1 else out.sequences_scores.tolist()
    outputs = []
    for tokens in out.sequences[:, len(prompt) :].tolist():
        ends = [i + 1 for i, token in enumerate(tokens) if token in eos_token_ids]
        outputs.append(tokens[: ends[0]] if ends else tokens)
    return list(zip(outputs, scores, strict=True))


def stable(model: Any, case: dict[str, Any], **asked: Any) -> bool:
    """Are these the winners, whatever little noise there is?"""
    wanted = [output["tokens"] for output in case["outputs"]]
    noise = transformers.LogitsProcessorList([Noise()])
    again = (beams(model, **asked, logits_processor=noise) for _ in range(4))
    return all([tokens for tokens, _ in outputs] == wanted for outputs in again)


def beam_cases(model: Any, num_ends: int, width: int, seed: int) -> list[dict[str, Any]]:
    """All variants for one prompt, or none of them if they do not differ or noise decides one."""
    prompt = np.random.RandomState(seed).randint(61, size=6).tolist()
    written = Counter(t for tokens, _ in beams(model, prompt, 4, []) for t in set(tokens[1:-1]))
    ends = sorted(token for token, _ in written.most_common(num_ends))
    asked: list[dict[str, Any]] = [{"prompt": prompt, "width": width, "eos_token_ids": ends}]
    if num_ends and width > 1:
        variants = itertools.product((0.0, 1.0, -0.5, 2.0), (False, True, "never"))
        asked = [asked[0] | {"length_penalty": a, "early_stopping": e} for a, e in variants]
    cases = []
    for one in asked:
        outputs = [{"tokens": tokens, "score": score} for tokens, score in beams(model, **one)]
        cases.append(one | {"outputs": outputs})
    different = {str([output["tokens"] for output in case["outputs"]]) for case in cases}
    if len(different) < min(4, len(cases)):
        return []
    sure = all(stable(model, case, **one) for case, one in zip(cases, asked, strict=True))
    return cases if sure else []


def make_beam_search() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two only get into each other's way here
    cases = []
    for name, num_ends, width in BEAM_CASES:
        model = tiny_model(tiny.CONFIGS[name])
        tries = (beam_cases(model, num_ends, width, seed) for seed in itertools.count())
        found = next(variants for variants in tries if variants)
        lengths = Counter(len(output["tokens"]) for case in found for output in case["outputs"])
        print(f"{name}, {num_ends} ends, width {width}: {len(found)} cases, lengths {lengths}")
        cases += [{"checkpoint": name, **case} for case in found]
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}, float32"
    lines = ",\n".join(json.dumps(case) for case in cases)
    golden = (
        f'{{"made_with": "{made_with}", "max_tokens": {NUM_BEAM_TOKENS}, "cases": [\n{lines}\n]}}\n'
    )
    (HERE / "beam_search.json").write_text(golden)


if __name__ == "__main__":
    makers = {"tiny": make_tiny, "beam_search": make_beam_search}
    with torch.no_grad():
        for argument in sys.argv[1:]:
            if argument in makers:
                makers[argument]()
            elif Path(argument).name in REAL:
                make_real(Path(argument))
            else:
                make_smollm2(Path(argument))
