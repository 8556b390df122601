/*
 * Who has which colour in a replay, as `window.replayColours`.
 *
 * A request has a colour: --figure-a and so on, in order. Each of its sequences has a shade of it, which it
 * keeps for its whole life; a beam that is born later takes the strongest shade that is free then.
 */
(() => {
  "use strict";

  const LETTERS = ["a", "b", "c", "d", "e", "f"];
  const STEP = 22; // percent between two shades
  const MOST = 66;

  /** The number of each sequence's shade, by name: from 0, the request's own colour. */
  function shadesOf(moments) {
    const shades = new Map();
    for (const { seqs } of moments) {
      for (const seq of seqs.filter(({ name }) => !shades.has(name))) {
        const ended = seq.status === "finished";
        const beside = seqs.filter((one) => one.request === seq.request && (one.status === "finished") === ended);
        const taken = new Set(beside.map(({ name }) => shades.get(name)));
        let free = 0;
        while (taken.has(free)) free += 1;
        shades.set(seq.name, free);
      }
    }
    return shades;
  }

  class Colours {
    constructor(trace) {
      this.letters = new Map(trace.requests.map((request, i) => [request, LETTERS[i % LETTERS.length]]));
      this.shades = shadesOf(trace.moments);
    }

    /** The class of a request's elements: "is-a" and so on. */
    className(request) {
      return `is-${this.letters.get(request)}`;
    }

    paint(seq) {
      const share = Math.min(STEP * this.shades.get(seq.name), MOST);
      return `color-mix(in oklab, var(--figure-${this.letters.get(seq.request)}), var(--figure-shade) ${share}%)`;
    }
  }

  window.replayColours = { Colours };
})();
