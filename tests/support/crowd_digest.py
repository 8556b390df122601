"""`python -m tests.support.crowd_digest THREADS`: serves crowds, prints a digest of what they got.

In a process of its own, since the numbers of threads and the processor's instructions are fixed
when one starts. XLA compiles as it does for users.
"""

import hashlib
import os
import sys


def main() -> None:
    """Raises AssertionError if somebody gets something else alone."""
    from tests.support.builders import Pool
    from tests.support.crowds import LONGEST_OUTPUT, compare, crowd, said

    digest = hashlib.sha256()
    how = {
        "scheduling": "unified", "enable_chunked_prefill": True, "max_num_batched_tokens": 61,
        "prefix_caching": False, "num_cpu_blocks": 0,
    }  # fmt: skip
    for pool in (
        Pool(3, 50, max_seqs=16, weights="w8a8", cache_dtype="int8"),
        Pool(3, 50, max_seqs=16, family="gpt_oss"),
    ):
        outputs, engine = compare(pool, crowd(7, 30, pool.max_len - LONGEST_OUTPUT), **how)
        assert len(outputs) > 20 and engine.stats().num_recomputed > 0, "a crowd that shows little"
        digest.update(repr(sorted((name, said(one)) for name, one in outputs.items())).encode())
    print(digest.hexdigest())


if __name__ == "__main__":
    threads = int(sys.argv[1])
    os.environ["NPROC"] = str(threads)  # XLA's
    os.cpu_count = lambda: threads  # ranges of the kernels' work
    main()
