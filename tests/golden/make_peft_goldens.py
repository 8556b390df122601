"""Asks PEFT what tiny checkpoints with its adapters answer; writes the adapters and the goldens.

Needs PyTorch, so it runs apart from the tests (see `make_hf_goldens`):

    python3.11 -m venv /tmp/peft
    /tmp/peft/bin/pip install torch==2.13.0 transformers==5.23.0 peft==0.21.2 numpy jaxtyping
    /tmp/peft/bin/python -m tests.golden.make_peft_goldens tiny

writes tests/golden/adapters: a folder for each case, as `save_pretrained` writes it, and
logits.npz. Their numbers are drawn from their names, so that B is not 0. With the path of
SmolLM2-135M-Instruct.Q4_1.gguf (see `make_hf_goldens`; needs `gguf`, too) it writes pirate.json:
what the model answers with examples/adapters/pirate.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch
import transformers
from safetensors.torch import save_file

from reference.quantization import gptq
from tests.golden import tiny_checkpoints as tiny
from tests.golden.adapter_cases import (
    CASES,
    FOLDER,
    GPTQ_BITS,
    GPTQ_CASE,
    GPTQ_CONFIG,
    GPTQ_GROUP,
    NUM_GREEDY,
    NUM_PIRATE,
    PIRATE,
    QUESTIONS,
)
from tests.golden.families.checkpoints import PROMPT, ROWS, cases, draw, tensors_of


def base_of(name: str, folder: Path) -> Any:
    """The model whose adapter it is, in float32, with the weights that the tests write."""
    if name == GPTQ_CASE:
        config, tensors = GPTQ_CONFIG, decoded_weights()
    else:
        case = cases()[CASES[name].base]
        config, tensors = case["config"], tensors_of(case)
    (folder / "config.json").write_text(json.dumps(config))
    whole = {key: torch.from_numpy(np.ascontiguousarray(one)) for key, one in tensors.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    return model


def decoded_weights() -> dict[str, np.ndarray]:
    """What the codes of the quantised checkpoint stand for."""

    def decoded(matrix: np.ndarray) -> np.ndarray:
        return gptq.decode(gptq.quantise(matrix, GPTQ_BITS, GPTQ_GROUP), GPTQ_BITS)

    return {
        name: decoded(values).astype(np.float32) if name.endswith("_proj.weight") else values
        for name, values in tiny.weights(GPTQ_CONFIG).items()
    }


def adapted(name: str, base: Any) -> Any:
    """The model with an adapter that is not trained, but drawn."""
    config = peft.LoraConfig(task_type="CAUSAL_LM", **CASES[name].fields)
    if CASES[name].numbered:
        write_numbered(name, config, FOLDER / name)
        return peft.PeftModel.from_pretrained(base, FOLDER / name).eval()
    model = peft.get_peft_model(base, config).eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if ".lora_" in key:
                weight.copy_(torch.from_numpy(draw(key, tuple(weight.shape))))
    return model


def write_numbered(name: str, config: Any, folder: Path) -> None:
    """An adapter of modules by the checkpoint's own names."""
    config.base_model_name_or_path = "tiny"
    config.inference_mode = True
    config.save_pretrained(folder)
    tensors = {}
    for tensor, (rows, columns) in sizes_of(CASES[name].base).items():
        module = tensor.removesuffix(".weight")
        if module.rpartition(".")[2] in CASES[name].fields["target_modules"]:
            for part, shape in (("A", (config.r, columns)), ("B", (rows, config.r))):
                key = f"base_model.model.{module}.lora_{part}.weight"
                tensors[key] = torch.from_numpy(draw(key, shape))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def sizes_of(base: str) -> dict[str, tuple[int, int]]:
    """The matrices of a checkpoint."""
    return {name: tuple(one) for name, one in cases()[base]["tensors"].items() if len(one) == 2}


def save(model: Any, folder: Path) -> None:
    """As PEFT saves it, without its form of a README and the folder that the base was in."""
    model.peft_config["default"].base_model_name_or_path = "tiny"
    model.save_pretrained(folder, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)


def answer(model: Any) -> tuple[np.ndarray, list[int], float]:
    """Logits of the kept rows, the greedy tokens, and the least margin between two best logits."""
    out = model(torch.tensor([PROMPT]), use_cache=True)
    logits, tokens, margin = [out.logits[0, ROWS].numpy()], [], float("inf")
    while True:
        best = torch.topk(out.logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        if len(tokens) == NUM_GREEDY:
            return np.concatenate(logits), tokens, margin
        step = torch.tensor([tokens[-1:]])
        out = model(step, past_key_values=out.past_key_values, use_cache=True)
        logits.append(out.logits[0].numpy())


def make_tiny() -> None:
    """Writes what is not there yet: remove a case's folder to make it again."""
    arrays = dict(np.load(FOLDER / "logits.npz")) if (FOLDER / "logits.npz").exists() else {}
    for name in CASES:
        if (FOLDER / name).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = adapted(name, base_of(name, Path(folder)))
        if not CASES[name].numbered:
            save(model, FOLDER / name)
        logits, tokens, margin = answer(model)
        arrays |= {f"{name}.logits": logits, f"{name}.tokens": np.array(tokens, np.int32)}
        print(f"{name}: {tokens}, least margin {margin:.4f}", flush=True)
    np.savez_compressed(FOLDER / "logits.npz", **arrays)


def make_pirate(gguf: Path) -> None:
    """Greedy answers to questions that the adapter was not trained on."""
    options = {"gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **options)
    base = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.float32, attn_implementation="eager", **options
    )
    model = peft.PeftModel.from_pretrained(base, PIRATE).eval()
    answers = []
    for question in QUESTIONS:
        asked = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(prompt, add_special_tokens=False).input_ids
        tokens, margin = greedy(model, ids, tokenizer.eos_token_id)
        text = tokenizer.decode(tokens, skip_special_tokens=True)
        print(f"{question} -> {text!r}, least margin {margin:.4f}", flush=True)
        answers.append({"question": question, "ids": tokens, "text": text, "margin": margin})
    packages = f"peft {peft.__version__}, transformers {transformers.__version__}"
    golden = {"made_with": f"torch {torch.__version__}, {packages}, float32", "answers": answers}
    (FOLDER.parent / "pirate.json").write_text(json.dumps(golden, indent=1) + "\n")


def greedy(model: Any, ids: list[int], end: int) -> tuple[list[int], float]:
    """Tokens up to the end, or NUM_PIRATE, and the least margin between two best logits."""
    tokens: list[int] = []
    margin, past, step = float("inf"), None, torch.tensor([ids])
    while len(tokens) < NUM_PIRATE and tokens[-1:] != [end]:
        out = model(input_ids=step, past_key_values=past, use_cache=True)
        best = torch.topk(out.logits[0, -1], 2)
        margin = min(margin, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
        past, step = out.past_key_values, torch.tensor([tokens[-1:]])
    return tokens, margin


if __name__ == "__main__":
    with torch.no_grad():
        for argument in sys.argv[1:]:
            make_tiny() if argument == "tiny" else make_pirate(Path(argument))
