"""Prefix caches, radix or hash ones: whose slots hold which beginnings? This is the contract.

A target is made by `make(page_size=P)`. It owns no memory: a request brings the slots of its tokens
(numbers, P in a row for a page, the first a multiple of P), and the cache keeps those of whole
pages, each until it gives them back from `evict`. All methods take keyword arguments and plain JSON
values. A method raises `Refused` where the target says no; nothing has changed then.

    match(tokens, salt) -> {"handle": number, "slots": [..]}
    insert(tokens, slots, salt) -> {"cached": tokens}
    lock(handle), unlock(handle) -> None
    evict(num_tokens) -> [slot, ..]
    sizes() -> {"evictable": tokens, "protected": tokens}
    reset() -> None                         with `reset`

- `match` finds the longest beginning of `tokens` (maybe none are given) that is cached in whole
  pages, all of `tokens` if they are: whoever needs a token to compute asks without the last. It
  may change how the cache is laid out, never what is in it. The handle stands for what was found.
- `insert` caches `tokens` up to their last whole page. `cached` of them are there already, with
  other slots perhaps: those stay, and of the caller's slots only the ones behind them (to the last
  whole page) belong to the cache from now on. The caller keeps the others, and frees them.
- `lock` protects all that a handle stands for until as many `unlock`s of it. A handle may be locked
  as long as nothing was evicted since its match. Inserts may come in between.
- `evict` gives back the slots of at least `num_tokens` cached tokens, in whole pages, none of them
  protected, and no more than are evictable. More than are evictable: it gives all, or refuses.
- `sizes`: both together are all cached tokens; what is locked is protected. (A cache may protect
  more than that, such as the rest of a node, unless it has `exact_sizes`.)

A caller does what engines do: it matches and locks, has the missing slots (evicting if need be),
computes, inserts, frees what the cache had already, and unlocks. It uses freed slots again.
"""

from paged_conformance.prefix_cache.rules import PROPERTIES

__all__ = ["CAPABILITIES", "PROPERTIES"]

CAPABILITIES: dict[str, str] = {
    "salts": "Texts of different salts share nothing.",
    "reset": "Can forget all that is cached, when nothing is locked.",
    "exact_sizes": "Protects what is locked, and nothing else.",
    "lru": "Evicts first the beginning whose end was matched or inserted least recently.",
}
