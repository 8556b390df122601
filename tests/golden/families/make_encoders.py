"""Asks PyTorch transformers for the states of tiny encoders, and for the scores of their heads.

    /tmp/torch311/bin/python -m tests.golden.families.make_encoders

writes encoders.json and encoders.npz beside it; `make.py` says in which environment. No size is a
power of two, and config.json lacks what is at the class's default.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.golden.families.checkpoints import HERE
from tests.golden.families.encoders import PROMPT, drawn, types_of

BERT: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 36,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 44,
    "max_position_embeddings": 90,
}
MODERN = BERT | {"num_hidden_layers": 5, "local_attention": 9, "num_attention_heads": 2} | {
    f"{name}_token_id": number for number, name in enumerate(("pad", "bos", "eos", "cls", "sep"))
}  # fmt: skip
OTHERS = {
    "hidden_act": "relu",
    "layer_norm_eps": 0.03,
    "type_vocab_size": 3,
    "num_attention_heads": 12,
}
BIASES = {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True}
# By name: transformers' class, and the configuration.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertModel", BERT),
    "bert_others": ("BertModel", BERT | OTHERS),
    "bert_masked": ("BertForMaskedLM", BERT),
    "bert_scores": ("BertForSequenceClassification", BERT | {"num_labels": 3}),
    "bert_reranker": ("BertForSequenceClassification", BERT | {"num_labels": 1}),
    "bert_tokens": ("BertForTokenClassification", BERT | {"num_labels": 4}),
    "roberta": ("RobertaModel", BERT | {"type_vocab_size": 1}),
    "roberta_padding_3": ("RobertaModel", BERT | {"pad_token_id": 3}),
    "roberta_masked": ("RobertaForMaskedLM", BERT),
    "roberta_scores": ("RobertaForSequenceClassification", BERT | {"num_labels": 3}),
    "roberta_tokens": ("RobertaForTokenClassification", BERT | {"num_labels": 4}),
    "xlm_roberta": ("XLMRobertaModel", BERT),
    "xlm_roberta_reranker": ("XLMRobertaForSequenceClassification", BERT | {"num_labels": 1}),
    "modernbert": ("ModernBertModel", MODERN),
    "modernbert_biases": ("ModernBertModel", MODERN | BIASES | {"local_attention": 6}),
    "modernbert_one_layer": ("ModernBertModel", MODERN | {"num_hidden_layers": 1}),
    "modernbert_masked": ("ModernBertForMaskedLM", MODERN),
    "modernbert_scores": (
        "ModernBertForSequenceClassification",
        MODERN | BIASES | {"num_labels": 3, "classifier_pooling": "mean"},
    ),
    "modernbert_reranker": ("ModernBertForSequenceClassification", MODERN | {"num_labels": 1}),
    "modernbert_tokens": ("ModernBertForTokenClassification", MODERN | {"num_labels": 4}),
    "nomic": ("NomicBertModel", BERT),
    "nomic_other_base": (
        "NomicBertModel",
        BERT | {"rope_parameters": {"rope_type": "default", "rope_theta": 77.0}},
    ),
    "nomic_scores": ("NomicBertForSequenceClassification", BERT | {"num_labels": 3}),
}  # fmt: skip


def spare(folder: Path, defaults: dict[str, Any]) -> dict[str, Any]:
    """config.json without what is at the class's default."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    needed = {"architectures", "model_type"}
    return {k: v for k, v in config.items() if k in needed or defaults.get(k, ...) != v}


@torch.no_grad()
def answer(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What encoders.json and encoders.npz keep of a case."""
    kind, fields = CASES[name]
    model_type = getattr(transformers, kind)
    given = model_type.config_class(**fields)
    model_type(given).save_pretrained(folder)
    file = folder / "model.safetensors"
    shapes = {key: list(tensor.shape) for key, tensor in load_file(file).items()}
    save_file(drawn(shapes), file, metadata={"format": "pt"})
    model, info = model_type.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    model.eval()
    config = spare(folder, model_type.config_class().to_dict())
    found = {}
    for which, types in (("", None), (".typed", types_of(config))):
        if types is not None or not which:
            more = {} if types is None else {"token_type_ids": torch.tensor([types])}
            out = model(torch.tensor([PROMPT]), output_hidden_states=True, **more)
            states = out.hidden_states[-1] if "ModernBert" not in kind else None
            if states is None:  # the last norm is behind them
                states = model.base_model(torch.tensor([PROMPT])).last_hidden_state
            found[f"{name}{which}.states"] = states[0].numpy()
            if "Classification" in kind:
                found[f"{name}{which}.logits"] = out.logits[0].numpy()
    return {"config": config, "tensors": shapes}, found


def main() -> None:
    kept, arrays = {}, {}
    for name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            kept[name], found = answer(name, Path(folder))
        arrays |= found
        print(name, {key: one.shape for key, one in found.items()}, flush=True)
    (HERE / "encoders.json").write_text(json.dumps(kept, indent=1) + "\n")
    np.savez_compressed(HERE / "encoders.npz", **arrays)


if __name__ == "__main__":
    main()
