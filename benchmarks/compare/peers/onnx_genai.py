"""onnxruntime-genai on static batches, right-padded: whoever has arrived, 32 at most.

A request ends at its own length, though its row stays in the batch to the end.
"""

import os
import time

from wire import serve


def load(settings):
    import numpy as np
    import onnxruntime_genai as genai

    model = genai.Model(settings["onnx"])
    most = settings["max_num_seqs"]

    def run(clock):
        todo = list(range(len(clock.requests)))
        while todo:
            time.sleep(max(0.0, clock.requests[todo[0]]["arrival_s"] - clock.now()))
            here = [i for i in todo if clock.requests[i]["arrival_s"] <= clock.now()]
            batch = here[:most]
            todo = [i for i in todo if i not in batch]
            _generate(np, genai, model, clock, batch)

    return run, {"onnxruntime-genai": genai.__version__, "threads": str(os.cpu_count())}


def _generate(np, genai, model, clock, batch):
    requests = [clock.requests[i] for i in batch]
    width = max(len(one["prompt"]) for one in requests)
    prompts = np.zeros((len(batch), width), np.int32)  # 0 is the token that pads, which it masks
    for row, one in enumerate(requests):
        prompts[row, : len(one["prompt"])] = one["prompt"]
    steps = max(one["output_len"] for one in requests)
    params = genai.GeneratorParams(model)
    length = width + steps
    params.set_search_options(
        batch_size=len(batch), max_length=length, min_length=length, do_sample=False
    )
    generator = genai.Generator(model, params)
    generator.append_tokens(prompts)
    for step in range(1, steps + 1):
        generator.generate_next_token()
        tokens, now = generator.get_next_tokens(), clock.now()
        for row, (i, one) in enumerate(zip(batch, requests, strict=True)):
            if step <= one["output_len"]:
                clock.add(i, 0, [tokens[row]], now)


if __name__ == "__main__":
    serve(load)
