"""From settings to an engine: its device, its memory, its runner, and weights read again."""
