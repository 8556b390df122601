"""What `chat` and `complete` have in common: where answers come from, and how they are asked for.

flags.py          flags: the model or a server, and how to sample
source.py         what a source of answers is
local.py          an engine in this process
remote.py         a server
server_events.py  reads the events of a server's answer
"""
