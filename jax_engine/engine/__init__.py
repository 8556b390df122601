"""One step of the engine: schedule, execute, process the outputs."""
