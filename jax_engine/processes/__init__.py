"""How one process starts, hears and ends another, and a runner that is in another one.

child.py            a process, its end, and the sockets between it and the one that started it
awake.py            the time in which a process runs, and whether it does anything
cores.py            which cores it runs on
remote_runner.py    a `Runner` whose steps another process carries out
runner_client.py    calls that process, or several that share a model
runner_child.py     one of them: its sockets, and a thread that sees that it ends
ray_actor.py        a process that Ray starts, as an actor
ray_child.py        that process, seen from its driver
runner_process.py   the process: its sockets, its beats, its log
runner_server.py    what it does with each call
stage_link.py       what a process hands on to the one with the next layers
wire.py             what the two say to each other
"""
