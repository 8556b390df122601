"""What a scheduler may be able to do, by the words that its adapter uses."""

CAPABILITIES: dict[str, str] = {
    "tables": "Rows have the block tables of their sequences.",
    "chunks": "Prompts may be spread over steps.",
    "threshold": "A limit on the tokens of a prompt in one step.",
    "prefix_cache": "Blocks of other requests are found by their tokens.",
    "salts": "Requests of another salt share no cache.",
    "fcfs": "Requests start in the order in which they came; the small do not overtake the large.",
    "priorities": "The policy 'priority'.",
    "aborts": "Requests may be aborted at any time.",
    "state": "It tells its unfinished requests and its free blocks.",
    "admission": "It refuses what could never finish, empty prompts, and ids in use.",
    "model_len": "It ends sequences at max_model_len; else max_tokens is made to fit.",
    "stop_token_ids": "Requests may have stop tokens of their own.",
    "repeats": "The same calls give the same plans.",
    "drafts": "Guessed tokens are verified, several tokens an update.",
    "swap": "What is preempted may be moved to CPU memory.",
    "samples": "A request may fork into several samples that share its prompt.",
    "adapters": "Requests may have adapters, so many different ones at most in a step.",
    "ahead": "A plan may be made before the tokens of the last one are known.",
}
