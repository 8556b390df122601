"""The processes of this package: how one starts, watches and ends another, and remote runners.

child_process.py     a process that this package starts: its start, its sockets, its end
placement.py         the cores and the GPUs on which each process runs
ray_actor.py         a runner's process that Ray starts, as an actor
runner_client.py     a `Runner` whose steps other processes carry out, and the calls to them
runner_child.py      one of these processes, as its driver sees it, and the thread that watches it
runner_process.py    that process itself: its sockets, heartbeats and log, and what a call does
runner_messages.py   the messages between a driver and that process
stage_link.py        what a pipeline stage hands on to the process of the next stage
"""
