"""What processes of one machine that share a model say to each other inside of a step.

shared_memory.py    the memory that they share
place.py            which of them this process is
gather.py           all of them get what each has
"""
