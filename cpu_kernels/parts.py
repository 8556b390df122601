"""Functions that are only parts of others: code for LLVM to link, without machine code of its own.

Numba gives each function machine code as soon as it is compiled. Nobody would call that of a part:
whoever calls the part has it linked in and compiles it once more. Leaving it out takes a
quarter off the CPU time of a first start. Parts are optimised before they are linked, as ever.
"""

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """A library that is linked into others and never run."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(NativeLowering):  # type: ignore[misc]
    """From Numba's IR to LLVM's, and no further."""

    _name = "lower_part"

    def run_pass(self, state: Any) -> bool:
        context = state.targetctx
        state.library = _PartLibrary(context.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        # Numba knows a compiled function by what Python calls: here something that nobody does.
        entry = object().__reduce_ex__
        lowered = state["cr"]
        context.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


class PartCompiler(CompilerBase):  # type: ignore[misc]
    """Numba's own passes, but for the last."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_LowerPart, NativeLowering)
        passes.passes = [one for one in passes.passes if one[0] is not NativeLowering]
        passes.finalize()
        return [passes]
