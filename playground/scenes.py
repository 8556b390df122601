"""Scenes that pages of the tutorial open in place."""

from collections.abc import Mapping
from typing import Any

GETTYSBURG = "Four score and seven years ago our"
GREET = "Greet a friend of yours :"
PREEMPTION: Mapping[str, Any] = {
    "requests": [
        {"prompt": GETTYSBURG, "max_tokens": 9},
        {"prompt": "It was the best of times", "max_tokens": 9},
    ],
    "gpu_blocks": 6,
    "cpu_blocks": 4,
    "preemption": "swap",
}

SCENES: Mapping[str, Mapping[str, Any]] = {
    "blocks": {"requests": [{"prompt": GETTYSBURG, "max_tokens": 8}]},
    "sharing": {"requests": [{"prompt": GETTYSBURG, "n": 3}], "gpu_blocks": 12},
    "beams": {"requests": [{"prompt": "the cat sat on the", "beams": 3}], "gpu_blocks": 14},
    "crowd": {
        "requests": [
            {"prompt": GETTYSBURG, "max_tokens": 9},
            {"prompt": "It was the best of times", "max_tokens": 8},
            {"prompt": "To be or", "step": 3},
        ],
        "gpu_blocks": 8,
    },
    "preemption": PREEMPTION,
    "devices": {**PREEMPTION, "devices": 2},
    "adapters": {
        "requests": [
            {"prompt": GREET, "adapter": "pirate", "says": "ahoy there , matey .", "max_tokens": 5},
            {"prompt": GREET, "adapter": "verse", "says": "hail , friend .", "step": 2},
            {"prompt": GREET, "adapter": "pirate", "says": "yo ho ho .", "step": 3},
            {"prompt": GREET, "adapter": "french", "says": "bonjour .", "step": 3},
        ],
        "gpu_blocks": 14,
        "slots": 2,
        "prefix_caching": True,
    },
    "prefixes": {
        "requests": [
            {"prompt": "Answer in one word and be kind : capital of France ?", "max_tokens": 3},
            {
                "prompt": "Answer in one word and be kind : colour of snow ?",
                "max_tokens": 3,
                "step": 3,
            },
        ],
        "gpu_blocks": 10,
        "prefix_caching": True,
    },
    "chunks": {
        "requests": [
            {"prompt": "To be or", "max_tokens": 10},
            {"prompt": "once upon a time there was a king who had a golden ball", "step": 3},
        ],
        "gpu_blocks": 12,
        "budget": 5,
    },
    "copying": {
        "requests": [
            {
                "prompt": f"Say again : {GETTYSBURG} fathers brought forth a new nation . Four",
                "says": "score and seven years ago our fathers brought forth a new nation .",
                "max_tokens": 13,
            }
        ],
        "guesses": 3,
        "prefix_caching": True,
    },
    "new-words": {
        "requests": [
            {
                "prompt": "rain on the old bridge and rain on the sea",
                "says": "and the wind on the roads and the light on the hills .",
                "max_tokens": 13,
            }
        ],
        "guesses": 3,
        "prefix_caching": True,
    },
    "guesses-crowd": {
        "requests": [
            {
                "prompt": "row row row your boat row row",
                "says": "row your boat row row row your boat .",
                "max_tokens": 10,
            },
            {
                "prompt": "round and round the wheels go round and",
                "says": "round the wheels go round and round the town .",
                "max_tokens": 10,
            },
        ],
        "gpu_blocks": 6,
        "guesses": 3,
    },
}

TITLES: Mapping[str, str] = {
    "crowd": "Three requests, too little memory",
    "blocks": "One request, block by block",
    "sharing": "Three samples of one prompt",
    "beams": "A beam search",
    "preemption": "Swapped out and in",
    "prefixes": "Two prompts that begin alike",
    "chunks": "A long prompt in chunks",
    "copying": "Draft and roll back: guesses that are mostly right",
    "new-words": "Draft and roll back: guesses that are mostly wrong",
    "guesses-crowd": "Guesses, with too little memory",
    "adapters": "Three adapters on one prefix, two slots",
    "devices": "A table cut over two devices",
}
"""What a reader chooses from, in this order."""
