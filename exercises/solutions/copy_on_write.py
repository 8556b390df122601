"""Forking counts; writing looks at the count."""

from exercises.copy_on_write import Answer, Pool, Table


def fork(pool: Pool, table: Table) -> Table:
    for block in table:
        pool.share(block)
    return list(table)


def append(pool: Pool, table: Table, position: int, word: str) -> None:
    logical, offset = divmod(position, pool.block_size)
    if logical == len(table):
        table.append(pool.take())
    elif pool.holders[table[logical]] > 1:
        copy = pool.take()
        pool.words[copy] = list(pool.words[table[logical]])
        pool.let_go(table[logical])
        table[logical] = copy
    pool.words[table[logical]][offset] = word


ANSWER: Answer = (fork, append)
