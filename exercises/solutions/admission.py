"""`reference/admission.py` in short: U + k + w <= G, or never."""

from exercises.admission import Answer, Pool, Request


def most_blocks(request: Request, block_size: int) -> int:
    num_blocks = -(-(request.prompt + request.max_tokens - 1) // block_size)
    shared = request.prompt // block_size
    return num_blocks + (request.samples - 1) * (num_blocks - shared)


def decide(request: Request, pool: Pool, free: int) -> str:
    most = most_blocks(request, pool.block_size)
    if most + request.samples + pool.watermark > pool.num_blocks:
        return "never"
    taken = -(-request.prompt // pool.block_size)
    return "now" if free - taken >= pool.watermark else "wait"


ANSWER: Answer = (most_blocks, decide)
