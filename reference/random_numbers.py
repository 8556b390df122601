"""The random numbers that tokens are drawn with: functions of a seed and a position, no state.

A generator that all requests share would tie a request's tokens to its neighbours in the batch.
Here a number is the encryption of *where* it is used. The cipher is Threefry (Salmon et al.,
"Parallel Random Numbers: As Easy as 1, 2, 3", SC'11): threefry2x32, with 20 rounds, turns 64 bits
into 64 others by a key of 64 bits. What is encrypted under which key is as JAX documents it, with
partitionable Threefry:

- a key is a seed's two words, the high one first;
- `fold_in(key, data)` is the key that encrypting (0, data) under `key` gives;
- 32 random bits of a key are the two words of the encrypted (0, 0), xor-ed;
- `uniform` of a key takes the upper 23 of these bits as a binary fraction.

So there is one number for each (seed, position), `uniform(seed, position)`, whoever asks for it. A
request that draws several samples has a seed for each (`derive_seed`), and one that brings no seed
gets one from the engine's (`request_seed`).
"""

import numpy as np

Words = tuple[int, int]

WORD = 2**32
KEY_PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
NUM_GROUPS = 5  # of four rounds each


def threefry2x32(key: Words, block: Words) -> Words:
    """`block` encrypted: 20 rounds of add, rotate, xor; after each four a part of the key is added.

    >>> [hex(word) for word in threefry2x32((0, 0), (0, 0))]
    ['0x6b200159', '0x99ba4efe']
    """
    keys = (*key, key[0] ^ key[1] ^ KEY_PARITY)
    x, y = (block[0] + keys[0]) % WORD, (block[1] + keys[1]) % WORD
    for group in range(NUM_GROUPS):
        for distance in ROTATIONS[group % 2]:
            x = (x + y) % WORD
            y = _rotate(y, distance) ^ x
        x = (x + keys[(group + 1) % 3]) % WORD
        y = (y + keys[(group + 2) % 3] + group + 1) % WORD
    return x, y


def fold_in(key: Words, data: int) -> Words:
    """The key for use number `data` of a key."""
    return threefry2x32(key, (0, data))


def uniform(seed: int, position: int) -> float:
    """One of the 2**23 numbers 0, 2**-23, 2 * 2**-23, ... below 1.

    >>> u = uniform(0, 5)
    >>> u == uniform(0, 5), u == uniform(0, 6), u == uniform(1, 5)
    (True, False, False)
    """
    seed = seed % 2**64
    first, second = threefry2x32(fold_in((seed // WORD, seed % WORD), position), (0, 0))
    return ((first ^ second) >> 9) / 2**23


def derive_seed(seed: int, i: int) -> int:
    """The seed of sample i of a request: its own seed for i = 0, else a hash of both.

    The hash is the i-th number of the SplitMix64 generator started at `seed`, less its last bit, so
    it is an integer in [0, 2**63) that any `seed` argument takes. The first number of SplitMix64
    started at 0 is known to be 0xE220A8397B1DCDAF:

    >>> derive_seed(7, 0), derive_seed(0, 1) == 0xE220A8397B1DCDAF >> 1
    (7, True)
    """
    if i == 0:
        return seed
    z = (seed + i * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (z ^ (z >> 31)) >> 1


def request_seed(seed: int | None, engine_seed: int, number: int) -> int:
    """A request's own seed; without one (None or -1), a hash of the engine's and its number.

    Numbers count the requests that the engine has accepted. The hash is 64 bits of NumPy's
    `SeedSequence`, which is made to turn such pairs into seeds.

    >>> request_seed(7, 0, 1), request_seed(None, 0, 1) == request_seed(-1, 0, 1)
    (7, True)
    >>> request_seed(None, 0, 1) == request_seed(None, 0, 2)
    False
    """
    if seed is not None and seed != -1:
        return seed
    return int(np.random.SeedSequence([engine_seed, number]).generate_state(1, np.uint64)[0])


def _rotate(word: int, distance: int) -> int:
    """To the left, around the end of 32 bits."""
    return (word << distance) % WORD | word >> 32 - distance
