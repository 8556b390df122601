"""What `doctor` finds out, each part in bounded time and whatever is broken.

finding.py  a fact, and what to do about it
machine.py  the processor, memory, and GPUs that JAX may not see
software.py versions, and packages that are missing
storage.py  caches and the default model
network.py  whether a model could be downloaded
device.py   JAX's devices, and what would run on them: asked in a process of their own
"""
