"""Functions that are only parts of others: code for LLVM to link, never compiled alone.

Numba optimises each function as soon as it is compiled, together with all that it calls, and gives
it machine code. Done for 150 parts of kernels that is most of LLVM's work, and nobody calls a part.
Here a part is only translated to LLVM's intermediate form. Whoever Python or XLA calls gets linked
with all of its parts, and their parts, and is optimised and compiled once.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """A library that is linked into others and never run."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """A library that is run: everything it needs is linked in, and then optimised."""

    def __init__(self, codegen: Any, name: str):
        super().__init__(codegen, name)
        self.enable_object_caching()

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._linking_libraries = list(dict.fromkeys(_needed(self)))
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Runs Numba's last passes; those before them prepare for its reference counts.

        Then parts become private: their names have numbers that count up in each process, so two
        kernels out of Numba's cache may have the same name for different functions. Private from
        the start, LLVM would put each one with a single caller into it, which takes longer.
        """
        made = self._codegen._module_pass_manager()  # Numba 0.61: the passes alone
        passes, *builder = made if isinstance(made, tuple) else (made,)
        passes.run(self._final_module, *builder)
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal


def _needed(library: Any) -> Iterator[Any]:
    """What a library calls, directly or not; what is no part has linked its own already."""
    for called in library._linking_libraries:
        yield called
        if isinstance(called, _Part):
            yield from _needed(called)


class _Lower(NativeLowering):  # type: ignore[misc]
    """From Numba's intermediate form to LLVM's, into a library of our own."""

    library: type[JITCodeLibrary]

    def run_pass(self, state: Any) -> bool:
        state.library = self.library(state.targetctx.codegen(), state.func_id.func_qualname)
        return bool(super().run_pass(state))


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerPart(_Lower):
    _name, library = "lower_part", _Part

    def run_pass(self, state: Any) -> bool:
        state.flags.no_compile = True
        super().run_pass(state)
        # Numba knows a compiled function by what Python calls: here something that nobody does.
        entry = object().__reduce_ex__
        lowered = state["cr"]
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWhole(_Lower):
    _name, library = "lower_whole", _Whole


class _Compiler(CompilerBase):  # type: ignore[misc]
    """Numba's own passes, with another one for lowering."""

    lowering: type[_Lower]

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(self.lowering, NativeLowering)
        passes.passes = [one for one in passes.passes if one[0] is not NativeLowering]
        passes.finalize()
        return [passes]


class PartCompiler(_Compiler):
    """For functions that only compiled functions call."""

    lowering = _LowerPart


class WholeCompiler(_Compiler):
    """For functions that XLA or Python calls."""

    lowering = _LowerWhole
