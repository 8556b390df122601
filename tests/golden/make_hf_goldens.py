"""Asks PyTorch transformers what the tiny checkpoints and SmolLM2 answer; writes the goldens.

Needs PyTorch, whose small CPU build installs on Python 3.11 only, so it runs apart from the tests:

    python3.11 -m venv /tmp/torch311
    /tmp/torch311/bin/pip install torch==2.13.0 transformers accelerate gguf numpy
    /tmp/torch311/bin/python -m tests.golden.make_hf_goldens SmolLM2-135M-Instruct.Q4_1.gguf

(the file that `jax_engine.models.default_model.default_model_path()` returns). Writes
tests/golden/tiny.npz and tests/golden/smollm2.json.
"""

import json
import sys
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


if __name__ == "__main__":
    with torch.no_grad():
        make_tiny()
        make_smollm2(Path(sys.argv[1]))
