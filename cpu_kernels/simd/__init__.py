"""Everything that emits LLVM: vectors of 16 numbers, memory, and the loops built from them."""
