"""vLLM's own tests of its server, run against this one."""
