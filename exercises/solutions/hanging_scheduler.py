"""The admission rule of `reference/admission.py`, for one sequence and no watermark: U + 1 <= G."""

from exercises import hanging_scheduler as exercise


class Scheduler(exercise.Scheduler):
    def accepts(self, request: exercise.Request) -> bool:
        tokens = request.prompt + request.max_tokens - 1
        return -(-tokens // self.block_size) + 1 <= self.num_blocks


ANSWER = Scheduler
