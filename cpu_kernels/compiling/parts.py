"""Compiles kernels whole: their parts are functions that LLVM links, never compiled alone.

Numba optimises each function as soon as it is compiled, with all functions that it calls, and
generates its machine code. For 150 parts of kernels this is most of LLVM's work, though no part is
called by itself. Here a part is only translated to LLVM's intermediate form. A function that Python
or XLA calls is linked with its parts, and their parts, then optimised and compiled once.
"""

from collections.abc import Iterator
from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Part(JITCodeLibrary):  # type: ignore[misc]
    """A library that is linked into others and never run by itself."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


class _Whole(JITCodeLibrary):  # type: ignore[misc]
    """A library that is run: all parts are linked into it, and then optimised."""

    def __init__(self, codegen: Any, name: str):
        super().__init__(codegen, name)
        self.enable_object_caching()

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        self._linking_libraries = list(dict.fromkeys(_needed(self)))
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Runs only Numba's last passes; the earlier ones prepare for its reference counts.

        Then makes parts private. Their names contain numbers that count up in each process, so two
        kernels from Numba's cache may use the same name for different functions. If parts were
        private before the passes, LLVM would inline each part with a single caller, which takes
        longer.
        """
        made = self._codegen._module_pass_manager()  # Numba 0.61: the passes alone
        passes, *builder = made if isinstance(made, tuple) else (made,)
        passes.run(self._final_module, *builder)
        for function in self._final_module.functions:
            if function.linkage == Linkage.linkonce_odr:
                function.linkage = Linkage.internal


def _needed(library: Any) -> Iterator[Any]:
    """All libraries that a library calls; libraries that are not parts have linked their own."""
    for called in library._linking_libraries:
        yield called
        if isinstance(called, _Part):
            yield from _needed(called)


class _Lower(NativeLowering):  # type: ignore[misc]
    """Translates Numba's intermediate form to LLVM's, into a library of the class `library`."""

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
        # Numba identifies a compiled function by its Python entry. A part gets a unique dummy.
        entry = object().__reduce_ex__
        lowered = state["cr"]
        state.targetctx.insert_user_function(entry, lowered.fndesc, [state.library])
        state["cr"] = lowered._replace(cfunc=entry)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _LowerWhole(_Lower):
    _name, library = "lower_whole", _Whole


class _Compiler(CompilerBase):  # type: ignore[misc]
    """Numba's own passes, but with `lowering` in place of its lowering pass."""

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
