// A block manager in JavaScript, in a process that the suite speaks to:
//
//     paged-conformance block-manager --command "node block_manager.js"

class Refused extends Error {}

class BlockManager {
  constructor({ block_size, num_blocks }) {
    this.blockSize = block_size;
    this.numBlocks = num_blocks;
    this.freeBlocks = [...Array(num_blocks).keys()];
    this.sequences = new Map();
  }
  capacity() { return this.numBlocks; }
  num_free() { return this.freeBlocks.length; }
  open({ seq, tokens }) {
    const sequence = { length: 0, table: [] };
    this.grow(sequence, tokens.length);
    this.sequences.set(seq, sequence);
    return { hit: 0 };
  }
  extend({ seq, tokens }) {
    this.grow(this.sequences.get(seq), tokens.length);
    return [];
  }
  grow(sequence, tokens) {
    const needed = Math.ceil((sequence.length + tokens) / this.blockSize) - sequence.table.length;
    if (needed > this.freeBlocks.length) throw new Refused(`${needed} blocks are not free`);
    sequence.table.push(...this.freeBlocks.splice(0, needed));
    sequence.length += tokens;
  }
  computed() {}
  table({ seq }) { return this.sequences.get(seq)?.table ?? []; }
  free({ seq }) {
    this.freeBlocks.push(...this.table({ seq }));
    this.sequences.delete(seq);
  }
}

// What follows serves any target, and is all that the suite asks of a process.
const targets = new Map();
const answers = {
  describe: () => ({ capabilities: [], sizes: {} }),
  make: ({ id, sizes, drop }) => {
    drop.forEach((old) => targets.delete(old));
    targets.set(id, new BlockManager(sizes));
    return id;
  },
  call: ({ target, method, arguments: given }) => targets.get(target)[method](given) ?? null,
};
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const asked = JSON.parse(line);
  let answer;
  try {
    answer = { result: answers[asked.do](asked) };
  } catch (error) {
    answer = error instanceof Refused ? { refused: error.message } : { error: error.stack };
  }
  console.log(JSON.stringify({ id: asked.id, ...answer }));
});
