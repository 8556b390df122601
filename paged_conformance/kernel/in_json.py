"""A kernel whose arguments and results are plain JSON, such as one in another process."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import numpy as np

from paged_conformance.kernel.arrays import FLOATS, from_json, to_json
from paged_conformance.kernel.cases import Case, Options
from paged_conformance.kernel.expected import Result
from paged_conformance.kernel.sizes import Sizes
from paged_conformance.kernel.words import ARGUMENTS, CAPABILITIES
from paged_conformance.properties import Lacking, Refused

# Small enough to be sent in milliseconds.
SMALL = Sizes(
    tokens=24, seqs=4, context=40, long_context=1100, tile=8, step=16,
    geometries=((4, 2, 2, 8), (8, 1, 3, 16)),
)  # fmt: skip


class InJson:
    """A kernel whose arguments and results are plain JSON, such as one in another process.

    `make()` gives an object with the method `attend`; see the contract. After a failure the next
    call makes another one.
    """

    def __init__(self, make: Callable[[], Any], words: Collection[str] | None, sizes: Sizes):
        self.name = str(getattr(make, "name", None) or getattr(make, "__name__", "the kernel"))
        self.make, self.sizes = make, sizes
        self._target: Any = None
        self.capabilities = frozenset(CAPABILITIES if words is None else words)
        unknown = self.capabilities - CAPABILITIES.keys()
        if unknown:
            raise ValueError(f"capabilities has {min(unknown)!r}; it may have {[*CAPABILITIES]}")
        if not self.capabilities & {*FLOATS}:
            self.capabilities |= {"float32"}
        if self.sizes.dtype not in self.capabilities:
            dtype = next(name for name in FLOATS if name in self.capabilities)
            self.sizes = replace(self.sizes, dtype=dtype)
        if "prompts" not in self.capabilities:
            self.sizes = replace(self.sizes, decode_only=True)

    def missing(self, case: Case, options: Options) -> str | None:
        asked = [word for word, name in ARGUMENTS.items() if name in options]
        asked += ["keys-alone"] if case.kv_cache.shape[1] == 1 else []
        asked += [case.q.dtype.name, case.kv_cache.dtype.name]
        asked += [] if case.decode_only else ["prompts"]
        lacking = [word for word in asked if word not in self.capabilities]
        return f"the capability {lacking[0]}" if lacking else None

    def __call__(self, case: Case, options: Options) -> Result:
        arrays = {
            "q": case.q,
            "kv_cache": case.kv_cache,
            "block_tables": case.block_tables,
            "context_lens": case.context_lens,
            "query_start_loc": case.query_start_loc,
        }
        if case.kv_scales is not None:
            arrays["kv_scales"] = case.kv_scales
        arrays |= {name: options[name] for name in ("alibi_slopes", "sinks") if name in options}
        given: dict[str, Any] = {name: to_json(array) for name, array in arrays.items()}
        given |= {name: value for name, value in options.items() if name not in given}
        given |= {"layer": case.layer, "scale": case.scale, "decode_only": case.decode_only}
        try:
            self._target = self._target or self.make()
            found = self._target.attend(**given)
        except Refused as refusal:
            raise Lacking(f"{self.name} refused: {refusal}") from refusal
        except Exception:
            self._target = None
            raise
        lse = found.get("lse")
        out = from_json(found["out"]).astype(np.float32)
        return out, None if lse is None else from_json(lse).astype(np.float32)
