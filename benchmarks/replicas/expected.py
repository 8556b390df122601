"""What was expected of the simulation, written before it ran: 10 replicas had been tried.

Since then a part of a first run was seen, of up to 100 replicas under too much load at the start.
The words are as they were.
"""

from typing import Final

EXPECTED: Final = (
    "Round robin and least load: the share of cached tokens falls with the number of replicas, as "
    "a turn rarely meets its conversation again, from 85 % with one replica to 45 % from 30 on. "
    "Goodput falls to 80 % of one replica's, and stays there.",
    "Least load is better than round robin by 10 % at most: both find the same in the cache.",
    "Prefix alone: as good as `both` with 3 replicas, the worst rule from 30 on. Conversations "
    "never leave the replica that had their tenant first, so 20 replicas work at most: less than a "
    "tenth of the goodput of `both` with 1,000.",
    "Both: over 75 % of the prompts' tokens are cached, and goodput a replica changes by less than "
    "10 % from 1 to 1,000 replicas.",
    "The excess allowed hardly matters between 0 and 8. With 64 a replica has more requests than "
    "it can serve in time before it sends any away, and goodput is the worst of the three.",
)
