"""The loop over an engine with vLLM's interface: `add_request`, `step`. Serves vLLM and ours."""

import time


def lora_settings(settings):
    """What both engines are told of adapters, where the settings name folders of theirs."""
    paths = settings.get("adapters")
    return {"enable_lora": True, "max_loras": len(paths), "max_lora_rank": 16} if paths else {}


def make_run(engine, sampling_params, adapters=()):
    """run(clock) for `wire.serve`.

    Args:
        engine: Has add_request, step, has_unfinished_requests; a step gives the outputs so far.
        sampling_params: The class.
        adapters: The LoRA requests that requests name by number, from 1.
    """
    adapters = [None, *adapters]
    num_passes = 0

    def params(request):  # with no seed: vLLM's CPU build fails on one
        sampled = request["n"] > 1
        return sampling_params(
            n=request["n"],
            temperature=1.0 if sampled else 0.0,
            max_tokens=request["output_len"],
            ignore_eos=True,
            detokenize=False,
        )

    def run(clock):
        nonlocal num_passes
        num_passes += 1
        todo = list(enumerate(clock.requests))
        while todo or engine.has_unfinished_requests():
            while todo and todo[0][1]["arrival_s"] <= clock.now():
                index, request = todo.pop(0)
                prompt = {"prompt_token_ids": request["prompt"]}
                lora = adapters[request["adapter"]]
                name = f"{num_passes}-{index}"
                engine.add_request(name, prompt, params(request), lora_request=lora)
            if not engine.has_unfinished_requests():
                time.sleep(max(0.0, todo[0][1]["arrival_s"] - clock.now()))
                continue
            outputs, now = engine.step(), clock.now()
            for output in outputs:
                index = int(output.request_id.split("-")[1])
                for sample in output.outputs:
                    known = len(clock.tokens[index][sample.index])
                    clock.add(index, sample.index, sample.token_ids[known:], now)

    return run
