"""One call by XLA: its frame, the threads that share its work, and `@cpu_kernel`."""
