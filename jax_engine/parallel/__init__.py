"""Several processes and devices: how one process starts, hears and ends another.

child.py   a process, its end, and the sockets between it and the process that started it
awake.py   the time in which a process runs
"""
