"""The device side: the plan of a step as padded arrays, compiled steps, the KV cache, memory."""
