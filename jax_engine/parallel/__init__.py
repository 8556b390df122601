"""Several devices and processes.

Devices of one process share a model (tensor parallelism, as in Megatron). Each has some of the
heads, of the FFN's width and of the vocabulary. All of them run the same step on the same tokens;
`Attention.o` and `Mlp.down` end in a sum over the devices.

    divided.py    the specification of one device's share, and which sizes fit
    cuts.py       which rows or columns of each weight a device holds
    sums.py       what devices say to each other inside of a step
    mesh.py       the devices, and arrays that lie on all of them

A process starts, hears and ends another one, and a runner may be in it.

    child.py            a process, its end, and the sockets between it and the one that started it
    awake.py            the time in which a process runs
    remote_runner.py    a `Runner` whose steps another process carries out
    runner_client.py    starts that process, calls it, and sees that it ends
    runner_process.py   the process: its sockets, its beats, its log
    runner_server.py    what it does with each call
    wire.py             what the two say to each other
"""
