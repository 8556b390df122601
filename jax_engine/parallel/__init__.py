"""Several devices that share a model (tensor parallelism, as in Megatron).

Each device has some of the heads, of the FFN's width and of the vocabulary. All of them run the
same step on the same tokens; `Attention.o` and `Mlp.down` end in a sum over the devices.

    divided.py    the specification of one device's share, and which sizes fit
    cuts.py       which rows or columns of each weight a device holds
    sums.py       what devices say to each other inside of a step
    mesh.py       the devices of one process, and arrays that lie on all of them
    seat.py       which of several processes this is, where each is a device
    stages.py     which layers each of several stages has (pipeline parallelism)
"""
