/*
 * What belongs together in a replay, as `window.replayLines`: what is lit, the lines between logical and
 * physical blocks, and the arrows and flights of blocks that are copied.
 */
(() => {
  "use strict";

  const { s } = window.elements;

  function ends({ kind, from, to }) {
    return [`${kind === "in" ? "cpu" : "gpu"}:${from}`, `${kind === "out" ? "cpu" : "gpu"}:${to}`];
  }

  /** The key of a block of one of several devices. */
  function onDevice(key, rank) {
    return rank > 0 ? `${key}@${rank}` : key;
  }

  /** A path from box a to box b: sideways, or from above or below, or over what lies between. */
  function curve(a, b, origin) {
    const at = (x, y) => `${(x - origin.left).toFixed(1)},${(y - origin.top).toFixed(1)}`;
    const [ax, bx] = [a, b].map((box) => box.left + box.width / 2);
    const [ay, by] = [a, b].map((box) => box.top + box.height / 2);
    if (Math.abs(ay - by) < a.height / 2) {
      const top = Math.min(a.top, b.top) - 24;
      return `M ${at(ax, a.top + 6)} C ${at(ax, top)} ${at(bx, top)} ${at(bx, b.top + 6)}`;
    }
    if (b.left > a.right || b.right < a.left) {
      const [x1, x2] = b.left > a.right ? [a.right, b.left] : [a.left, b.right];
      const bend = (x2 - x1) / 2;
      return `M ${at(x1, ay)} C ${at(x1 + bend, ay)} ${at(x2 - bend, by)} ${at(x2, by)}`;
    }
    const [y1, y2] = by > ay ? [a.bottom - 6, b.top + 6] : [a.top + 6, b.bottom - 6];
    const bend = (y2 - y1) / 2;
    return `M ${at(ax, y1)} C ${at(ax, y1 + bend)} ${at(bx, y2 - bend)} ${at(bx, y2)}`;
  }

  class Lines {
    constructor(stage) {
      this.stage = stage;
      this.svg = s("svg", { class: "replay-lines", "aria-hidden": "true" });
      this.moment = null;
      this.ranks = [0]; // of the devices, each of which has all blocks
      this.lit = [];
      stage.append(this.svg);
    }

    element(key) {
      return this.stage.querySelector(`[data-key="${CSS.escape(key)}"]`);
    }

    /** Pairs of keys (logical block, physical block) that a key is part of: a table is that of all devices. */
    pairs(key) {
      return this.moment.seqs.flatMap((seq) =>
        seq.table.flatMap((block, logical) =>
          this.ranks.map((rank) => [`${seq.name}/${logical}`, onDevice(`${seq.device}:${block}`, rank)]))
      ).filter((pair) => pair.includes(key));
    }

    /** Keys of the blocks that a move goes between, on each device. */
    flights(move) {
      return this.ranks.map((rank) => ends(move).map((key) => onDevice(key, rank)));
    }

    /** Of another moment, on so many devices. */
    show(moment, key, devices) {
      this.ranks = Array.from({ length: devices }, (_, rank) => rank);
      for (const ghost of this.stage.querySelectorAll(".is-ghost")) ghost.remove();
      this.moment = moment;
      this.highlight(key);
    }

    /** Lights an element and what it maps to; null: nothing. */
    highlight(key) {
      this.lit = key === null || this.element(key) === null ? [] : this.pairs(key);
      for (const one of this.stage.querySelectorAll(".is-lit")) one.classList.remove("is-lit");
      for (const one of this.lit.flat()) this.element(one)?.classList.add("is-lit");
      this.stage.classList.toggle("has-lit", this.lit.length > 0);
      this.draw();
    }

    /** Lines of what is highlighted, and arrows for blocks that are copied. */
    draw() {
      if (!this.moment) return;
      const origin = this.stage.getBoundingClientRect();
      this.svg.setAttribute("viewBox", `0 0 ${origin.width} ${origin.height}`);
      const line = (from, to, kind) => {
        const [a, b] = [from, to].map((key) => this.element(key)?.getBoundingClientRect());
        if (!a || !b) return [];
        const path = s("path", { d: curve(a, b, origin), class: `replay-line is-${kind}` });
        const tip = path.getAttribute("d").split(" ").pop().split(",");
        return [path, s("circle", { cx: tip[0], cy: tip[1], r: 4, class: `replay-tip is-${kind}` })];
      };
      const moves = this.moment.kind === "written" ? [] : this.moment.moves;
      const kind = this.moment.kind === "plan" ? "planned" : "move";
      this.svg.replaceChildren(
        ...this.lit.flatMap(([from, to]) => line(from, to, "link")),
        ...moves.flatMap((move) => this.flights(move)).flatMap((pair) => line(...pair, kind))
      );
    }

    /** Blocks that are copied fly to where they go. */
    fly() {
      if (this.moment.kind !== "moved") return;
      for (const pair of this.moment.moves.flatMap((move) => this.flights(move))) {
        const [from, to] = pair.map((key) => this.element(key));
        const [a, b, origin] = [from, to, this.stage].map((one) => one.getBoundingClientRect());
        const ghost = to.cloneNode(true);
        for (const name of Object.keys(ghost.dataset)) delete ghost.dataset[name];
        ghost.setAttribute("aria-hidden", "true");
        ghost.classList.add("is-ghost");
        ghost.style.width = `${b.width}px`;
        ghost.style.left = `${b.left - origin.left}px`;
        ghost.style.top = `${b.top - origin.top}px`;
        this.stage.append(ghost);
        const start = `translate(${a.left - b.left}px, ${a.top - b.top}px)`;
        const flight = ghost.animate([{ transform: start }, { transform: "none" }], { duration: 700, easing: "ease-in-out" });
        flight.onfinish = flight.oncancel = () => ghost.remove();
      }
    }
  }

  window.replayLines = { ends, onDevice, Lines };
})();
