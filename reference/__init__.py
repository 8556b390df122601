"""The engine, written to be read: NumPy, no tricks, every rule in one place.

This package is the oracle that the fast engine is tested against, and a book about the system of
"Efficient Memory Management for Large Language Model Serving with PagedAttention" (SOSP'23, here
"the paper"). Read it in this order; the numbers are sections of the paper:

The model
    `attention`            attention over a KV cache that lies in blocks (4.1)
    `kv_cache`             the blocks themselves: write, copy, swap (4.2, 4.5)
    `rope`                 how a token knows its position
    `norms`                what keeps the numbers of a layer near one
    `activations`          what bends them between two matrices
    `transformer_config`   the sizes of a decoder, and the switches between families
    `experts`              many networks, of which each token uses a few
    `transformer`          the decoder over a paged KV cache (2.1, 4.1)
    `encoder`              the other half: whole texts, and one vector for each
    `sampling_options`     what a request may ask of the next two, and what comes back (5.2)
    `logits`               what a request may do to the logits (5.2)
    `thinking`             when reasoning has had enough tokens, and its end is written
    `random_numbers`       one for each seed and position (5.2)
    `sampling`             from logits to a token (5.2)
    `quantization`         weights of a few bits: a folder, with a file for each format
    `lora`                 a small change of a matrix, kept apart from it

The memory
    `allocator`            a pool of equal blocks: reference counts and a free list (4.2)
    `blocks`               block tables: allocate, copy on write, fork, free, swap (4.2 to 4.5)
    `prefix_cache`         finding blocks whose content is already known (4.4, "Shared prefix")
    `block_files`          which of them a folder keeps when the engine has ended

The scheduler
    `sequence`             a sequence, and the group of sequences that one request becomes (4.4)
    `beam_search`          which sequences of a group go on, and which have ended (4.4)
    `scheduler_config`     limits, and the three ways of scheduling
    `admission`            which requests can be promised to finish
    `scheduler_state`      waiting, running, swapped; preemption and recovery (4.5)
    `scheduler_sosp`       the step of the paper: prompts, or one token for every sequence (4.5)
    `scheduler_unified`    the step of today: one budget of tokens for prompts and decoding alike
    `speculation`          tokens that are guessed, and drawn again to see whether they are right
    `scheduler`            its public face: add, schedule, update, abort (4.5)

The whole
    `batch`                the tokens of a step, laid end to end (4.1, 4.3)
    `engine`               the loop that ties the chapters together (4, Figure 4)

What the client sees
    `parameters`           what a request may ask for, and the one form of each way to say it
    `text`                 from tokens to text, and where a stop string ends it
    `outputs`              what is given out after each step

The paper's evaluation
    `cost_model`           how long a step takes on the GPUs of Table 1 (6.1)
    `simulator`            a trace of requests, served under the cost model (6.1)
    `simulated_paging`     the real scheduler and block manager in it
    `baselines`            Orca with a buddy allocator, and FasterTransformer (6.1)

Many machines
    `routing`              which of several replicas computes a request
    `simulated_replicas`   conversations, replicas behind a router, under the cost model
"""
