"""transformers' `generate` on static batches, left-padded: whoever has arrived, 32 at most.

Tokens count from the moment they are computed, as a streaming server on top could deliver them,
and a request ends at its own length, though its row stays in the batch to the end.
"""

import os
import time

from wire import serve

BATCH = 32


def load(settings):
    import torch
    import transformers

    torch.set_num_threads(os.cpu_count())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        settings["model"], dtype=getattr(torch, settings["dtype"])
    ).eval()

    def run(clock):
        todo = list(range(len(clock.requests)))
        while todo:
            time.sleep(max(0.0, clock.requests[todo[0]]["arrival_s"] - clock.now()))
            here = [i for i in todo if clock.requests[i]["arrival_s"] <= clock.now()]
            batch = here[: max(1, BATCH // clock.requests[todo[0]]["n"])]
            todo = [i for i in todo if i not in batch]
            with torch.inference_mode():
                _generate(torch, model, clock, batch)

    return run, {"transformers": transformers.__version__, "torch": torch.__version__}


def _generate(torch, model, clock, batch):
    requests = [clock.requests[i] for i in batch]
    n = requests[0]["n"]
    width = max(len(one["prompt"]) for one in requests)
    ids = torch.zeros((len(batch), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(requests):
        ids[row, width - len(one["prompt"]) :] = torch.tensor(one["prompt"])
        mask[row, width - len(one["prompt"]) :] = 1

    def each_step(sequences, scores, **_):
        now, step = clock.now(), sequences.shape[1] - width
        for row, (i, one) in enumerate(zip(batch, requests, strict=True)):
            if step <= one["output_len"]:
                for sample in range(n):
                    clock.add(i, sample, [sequences[row * n + sample, -1]], now)
        return torch.zeros(sequences.shape[0], dtype=torch.bool)

    steps = max(one["output_len"] for one in requests)
    how = {"do_sample": True, "top_k": 0, "num_return_sequences": n} if n > 1 else {}
    model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=steps,
        min_new_tokens=steps,
        pad_token_id=0,
        stopping_criteria=[each_step],
        **({"do_sample": False} | how),
    )


if __name__ == "__main__":
    serve(load)
