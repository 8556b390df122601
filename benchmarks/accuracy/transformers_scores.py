"""Run by transformers' own Python: sums of log-probabilities of the last tokens of each row.

python transformers_scores.py MODEL_DIRECTORY ROWS.json SCORES.json
"""

import json
import os
import sys

import torch
import transformers
from tqdm import tqdm


def main() -> None:
    directory, source, target = sys.argv[1:]
    torch.set_num_threads(os.cpu_count() or 1)
    model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    model.eval()
    with open(source, encoding="utf-8") as file:
        rows = json.load(file)
    scores = []
    with torch.inference_mode():
        for token_ids, num_scored in tqdm(rows, desc="transformers"):
            logits = model(torch.tensor([token_ids[:-1]])).logits[0, -num_scored:]
            wanted = torch.tensor(token_ids[-num_scored:])
            logprobs = torch.log_softmax(logits, dim=-1)
            scores.append(logprobs.gather(1, wanted[:, None]).sum().item())
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"scores": scores, "versions": versions}, file)


if __name__ == "__main__":
    main()
