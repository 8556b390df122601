"""transformers 5.24.0: a prompt of one token with two samples ends the thread that generates.

I20: a step is never empty while requests are unfinished, and every accepted request finishes.

The step of such a request has no tokens, and the model cannot reshape an empty input. No request of
the batch gets an answer. A prompt of two tokens is answered. It is the same in 5.8.1.

    python transformers_one_token_two_samples.py

It needs PyTorch, and no GPU and no weights: the model is drawn at random.
"""

import torch
import transformers
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
)
config._attn_implementation = "eager"
model = LlamaForCausalLM(config).eval()
size = "page_size" if hasattr(ContinuousBatchingConfig, "page_size") else "block_size"
batching = ContinuousBatchingConfig(
    num_blocks=16, max_batch_tokens=64, use_cuda_graph=False, **{size: 16}
)
asked = GenerationConfig(
    max_new_tokens=3, do_sample=True, num_return_sequences=2, eos_token_id=2, pad_token_id=0
)
print("transformers", transformers.__version__)
for prompt in ([5, 6], [5]):
    answers = model.generate_batch(
        [prompt],
        generation_config=asked,
        continuous_batching_config=batching,
        warmup=False,
        progress_bar=False,
    )
    print(f"the prompt {prompt} has {len(answers)} answers of 2")
    for name, answer in answers.items():
        print(f"  {name}: {answer.generated_tokens}, error {answer.error}")
    unanswered = len(answers) < 2 or any(one.error for one in answers.values())
assert not unanswered, "a prompt of one token has no answers"
