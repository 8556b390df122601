"""vLLM 0.33.0: text is lost where the last token ends in the middle of a character.

I50: the pieces of a stream, put together, are the text of the whole output.

A token of a byte-level vocabulary may have whole characters and then the first bytes of another,
such as a space and the byte e2. When an output ends with it, the bytes may be left out, but both
detokenizers leave out the whole characters before them, too.

    python vllm_detokenizer_last_token.py

It needs vLLM, and no GPU and no weights: the vocabulary has three tokens.
"""

from types import SimpleNamespace

import vllm
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast
from vllm import SamplingParams
from vllm.v1.engine.detokenizer import FastIncrementalDetokenizer, SlowIncrementalDetokenizer

# As GPT-2 writes bytes: \u00e2 is the byte e2, which begins a character of three.
vocabulary = {"x": 0, "y": 1, "a\u00e2": 2}
backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
backend.decoder = decoders.ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)

print("vLLM", vllm.__version__)
lost = []
for kind in (FastIncrementalDetokenizer, SlowIncrementalDetokenizer):
    params = SamplingParams(max_tokens=2)
    request = SimpleNamespace(
        request_id="r", prompt_token_ids=[0], prompt_embeds=None, sampling_params=params
    )
    detokenizer = kind(tokenizer, request)
    detokenizer.update([1, 2], False)  # the second is the last: max_tokens is reached
    text = detokenizer.get_next_output_text(True, False)
    print(f"{kind.__name__}: {text!r}, decoded as a whole it is {tokenizer.decode([1, 2])!r}")
    if not text.startswith("ya"):
        lost.append(kind.__name__)
assert not lost, f"the character before the unfinished one is lost: {', '.join(lost)}"
