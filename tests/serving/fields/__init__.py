"""Every field of every request, off its default at the client, is in what the engine accepts."""
