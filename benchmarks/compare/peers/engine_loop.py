"""The loop over an engine with vLLM's interface: `add_request`, `step`. Serves vLLM and ours."""

import time


def make_run(engine, sampling_params):
    """run(clock) for `wire.serve`.

    Args:
        engine: Has add_request, step, has_unfinished_requests; a step gives the outputs so far.
        sampling_params: The class.
    """
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
                engine.add_request(f"{num_passes}-{index}", prompt, params(request))
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
