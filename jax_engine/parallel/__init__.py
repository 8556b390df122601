"""Several devices that share a model (tensor parallelism, as in Megatron).

Each device has some of the heads, of the FFN's width and of the vocabulary. All of them run the
same step on the same tokens; `Attention.o` and `Mlp.down` end in a sum over the devices.

    partition.py    the specification of one device's share, which sizes fit, and which layers each
                    of several stages has (pipeline parallelism)
    cuts.py         which rows or columns of each weight a device holds
    collectives.py  what devices say to each other inside of a step, and which of several processes
                    this is, where each is a device
    mesh.py         the devices of one process, and arrays that lie on all of them
"""
