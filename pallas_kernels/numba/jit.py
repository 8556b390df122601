"""How the functions within a kernel are compiled: for one another, and fast."""

from numba import njit

# They are part of the object code of those that XLA calls, so that only those are cached; Python
# calls none of them. Numba divides as Python does, and raises,
# unless it is told to do as NumPy.
inner = njit(
    error_model="numpy",
    no_cpython_wrapper=True,
    no_cfunc_wrapper=True,
)
