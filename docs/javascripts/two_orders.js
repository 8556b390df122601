/*
 * One sum in two orders, in float32, as `window.twoOrders`. The same arithmetic as
 * scripts/tutorial/two_orders.py, which explains it; a test compares them.
 */
(() => {
  "use strict";

  const round = Math.fround; // a sum of two float32, added in float64 and rounded, is float32's sum

  function hash(x) {
    x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
    x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
    return (x ^ (x >>> 16)) >>> 0;
  }

  function drawn(seed, count) {
    return Array.from({ length: count }, (_, i) => round(((hash(seed * 16 + i) % 8001) - 4000) / 1000));
  }

  const partsFor = (workers, rows) => Math.max(1, Math.floor(workers / rows));

  function add(step, worker, left, right) {
    const total = round(left + right);
    const [small, large] = Math.abs(left) > Math.abs(right) ? [right, left] : [left, right];
    return { step, worker, left, right, total, lost: small - (total - large) };
  }

  function additions(numbers, parts) {
    const size = numbers.length / parts;
    const totals = Array.from({ length: parts }, (_, worker) => numbers[worker * size]);
    const made = [];
    for (let step = 1; step < size; step++) {
      for (let worker = 0; worker < parts; worker++) {
        made.push(add(step, worker, totals[worker], numbers[worker * size + step]));
        totals[worker] = made.at(-1).total;
      }
    }
    let merged = totals[0];
    for (let i = 1; i < parts; i++) {
      made.push(add(size + i - 1, null, merged, totals[i]));
      merged = made.at(-1).total;
    }
    return made;
  }

  const totalOf = (made) => made.at(-1).total;
  const lostInAll = (made) => made.reduce((sum, one) => sum + one.lost, 0);

  function bits(number) {
    return new Uint32Array(new Float32Array([number]).buffer)[0].toString(16).padStart(8, "0");
  }

  function otherLogit(numbers) {
    const [inOrder, byTwo, byFour] = [1, 2, 4].map((parts) => totalOf(additions(numbers, parts)));
    const another = byFour !== inOrder ? byFour : byTwo;
    if (another === inOrder) return null;
    const [low, high] = [Math.min(inOrder, another), Math.max(inOrder, another)];
    const middle = round((low + high) / 2);
    return low < middle && middle < high ? middle : high;
  }

  const token = (tokens, logit, other) => tokens[Number(other > logit)];

  window.twoOrders = { drawn, partsFor, additions, totalOf, lostInAll, bits, otherLogit, token };
})();
