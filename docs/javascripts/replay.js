/*
 * Replays what the reference engine did: docs/traces/*.json, written by `python -m reference.trace`.
 *
 * A page holds <div class="replay"> with one <script type="application/json" data-trace="NAME"> a
 * scenario in it, so it works without a server, too. Each moment of a trace is the whole state; it
 * is drawn from scratch, and compared with the moment before it to mark what has changed.
 */
(() => {
  "use strict";

  const { h, s, classes } = window.elements;

  const COLOURS = ["a", "b", "c", "d", "e", "f"]; // of requests, in order: --figure-a and so on
  const KINDS = {
    arrive: "a request arrives",
    plan: "the scheduler plans",
    moved: "blocks are copied",
    written: "the model writes",
    drawn: "words are drawn",
    fell: "an invariant falls",
  };
  const ICONS = {
    first: "M5 6h2v12H5zM12 6v12l-5-6zM19 6v12l-6-6z",
    event: "M4 6v12l6-6zM11 6v12l6-6zM18 6h2v12h-2z",
    back: "M15 6v12l-9-6zM17 6h2v12h-2z",
    play: "M8 5v14l11-7z",
    pause: "M7 5h4v14H7zM13 5h4v14h-4z",
    forward: "M9 6v12l9-6zM5 6h2v12H5z",
  };
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  function icon(name) {
    const svg = s("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
    svg.append(s("path", { d: ICONS[name] }));
    return svg;
  }

  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  /** A request has a colour; each further one of its sequences has a fainter shade of it. */
  function paintOf(moment, seq, colour) {
    const siblings = moment.seqs.filter((one) => one.request === seq.request);
    const number = siblings.findIndex((one) => one.name === seq.name);
    const share = Math.min(16 * number, 48);
    return `color-mix(in oklab, var(--figure-${colour}), var(--figure-shade) ${share}%)`;
  }

  /** Who holds a block: [{seq, logical}], in the order of the sequences. */
  function holdersOf(moment, device, block) {
    return moment.seqs.flatMap((seq) =>
      seq.device === device && seq.table.includes(block)
        ? [{ seq, logical: seq.table.indexOf(block) }]
        : []
    );
  }

  /** "A1·2", or "A1 A2·0" where all have it as the same logical block. */
  function inWords(holders) {
    const alike = new Set(holders.map(({ logical }) => logical)).size === 1;
    if (alike) return `${holders.map(({ seq }) => seq.name).join(" ")}·${holders[0].logical}`;
    return holders.map(({ seq, logical }) => `${seq.name}·${logical}`).join(" ");
  }

  class Replay {
    constructor(root) {
      this.root = root;
      const scripts = [...root.querySelectorAll("script[data-trace]")];
      this.traces = new Map(scripts.map((one) => [one.dataset.trace, JSON.parse(one.textContent)]));
      this.alone = "links" in root.dataset; // the page is about this replay: it may have the address
      this.timer = 0;
      this.pinned = null;
      this.root.append(...this.controls(), this.makeStage());
      if (this.traces.size < 2) this.root.classList.add("replay--one");
      this.listen();
      const [name, index] = this.alone ? this.fromAddress(window.location.hash) : [];
      if (this.traces.size > 0) this.open(name ?? this.traces.keys().next().value, index ?? 0);
    }

    // --- the fixed parts ------------------------------------------------------------------------

    controls() {
      const button = (name, label, action) =>
        h("button", { type: "button", class: `replay-${name}`, "aria-label": label, title: label, onclick: action }, icon(name));
      this.chooser = h(
        "select",
        { "aria-label": "Scenario", onchange: () => this.open(this.chooser.value, 0) },
        [...this.traces.values()].map((trace) => h("option", { value: trace.name }, trace.title))
      );
      this.speed = h(
        "select",
        { "aria-label": "Speed", class: "replay-speed", onchange: () => this.schedule() },
        ["0.5", "1", "2", "4"].map((x) => h("option", { value: x, selected: x === "1" ? "" : false }, `${x}×`))
      );
      this.scrub = h("input", {
        type: "range", min: 0, value: 0, "aria-label": "Moment",
        oninput: () => { this.stop(); this.show(Number(this.scrub.value)); },
      });
      this.toggle = button("play", "Play", () => (this.timer ? this.stop() : this.play()));
      this.count = h("span", { class: "replay-count" });
      this.badge = h("span", { class: "replay-badge" });
      this.says = h("p", { class: "replay-says", "aria-live": "polite" });
      this.about = h("p", { class: "replay-about" });
      return [
        h("div", { class: "replay-head" }, this.chooser, this.about),
        h("div", { class: "replay-panel" },
          h("div", { class: "replay-controls", role: "group", "aria-label": "Playback" },
            button("first", "To the first moment", () => this.go(-Infinity)),
            button("back", "One moment back", () => this.go(-1)),
            this.toggle,
            button("forward", "One moment forward", () => this.go(1)),
            button("event", "To the next event: a request comes, goes or moves", () => this.skip()),
            this.scrub, this.count, this.speed),
          h("div", { class: "replay-caption" }, this.badge, this.says)),
      ];
    }

    makeStage() {
      this.queues = h("div", { class: "replay-queues" });
      this.seqs = h("div", { class: "replay-seqs", role: "list", "aria-label": "Sequences, their words and block tables" });
      this.gpu = h("div", { class: "replay-pool", role: "list", "aria-label": "GPU blocks" });
      this.cpu = h("div", { class: "replay-pool", role: "list", "aria-label": "CPU blocks" });
      this.gpuNote = h("span", { class: "replay-note" });
      this.cpuPart = h("section", {}, h("h4", {}, "CPU blocks ", h("span", { class: "replay-note" }, "swapped out")), this.cpu);
      this.lines = s("svg", { class: "replay-lines", "aria-hidden": "true" });
      this.stage = h("div", { class: "replay-stage" },
        this.queues,
        h("div", { class: "replay-columns" },
          h("section", {}, h("h4", {}, "Logical blocks ", h("span", { class: "replay-note" }, "what each sequence sees, and its block table")), this.seqs),
          h("div", { class: "replay-memory" }, h("section", {}, h("h4", {}, "GPU blocks ", this.gpuNote), this.gpu), this.cpuPart)),
        this.lines);
      return this.stage;
    }

    listen() {
      const find = (event) => event.target.closest?.("[data-key]")?.dataset.key ?? null;
      this.stage.addEventListener("pointerover", (event) => {
        if (event.pointerType === "mouse") this.highlight(find(event) ?? this.pinned);
      });
      this.stage.addEventListener("pointerleave", () => this.highlight(this.pinned));
      this.stage.addEventListener("click", (event) => {
        const key = find(event);
        this.pinned = key === this.pinned ? null : key;
        this.highlight(this.pinned);
      });
      (this.alone ? document : this.root).addEventListener("keydown", (event) => this.key(event));
      if (this.alone) {
        window.addEventListener("hashchange", (event) => {
          const [name, index] = this.fromAddress(new URL(event.newURL).hash);
          if (name) { this.stop(); this.open(name, index); }
        });
      }
      new ResizeObserver(() => {
        this.reserve();
        this.drawLines();
      }).observe(this.stage);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
      if (event.key === " " && event.target.closest?.("button, a, summary")) return;
      const actions = { " ": () => this.toggle.click(), ArrowLeft: () => this.go(-1), ArrowRight: () => this.go(1), e: () => this.skip() };
      if (!(event.key in actions)) return;
      event.preventDefault();
      actions[event.key]();
    }

    // --- moving through time --------------------------------------------------------------------

    open(name, index) {
      this.trace = this.traces.get(name);
      this.colour = new Map(this.trace.requests.map((request, i) => [request, COLOURS[i % COLOURS.length]]));
      this.chooser.value = name;
      this.about.textContent = this.trace.about;
      this.scrub.max = this.trace.moments.length - 1;
      this.pinned = null;
      this.index = -1;
      this.reserve();
      this.show(index);
      this.schedule();
    }

    /** Room for the longest caption, so that nothing below it jumps. */
    reserve() {
      if (!this.trace || this.width === this.says.clientWidth + this.trace.name) return;
      this.width = this.says.clientWidth + this.trace.name;
      const copy = this.says.cloneNode();
      copy.removeAttribute("aria-live");
      copy.style.cssText = `position: absolute; visibility: hidden; width: ${this.says.clientWidth}px`;
      this.says.after(copy);
      const heights = this.trace.moments.map((moment) => {
        copy.textContent = moment.says;
        return copy.offsetHeight;
      });
      copy.remove();
      this.says.style.minHeight = `${Math.max(...heights)}px`;
    }

    go(by) {
      this.stop();
      this.show(this.index + by);
    }

    /** Where somebody changes queues, blocks are moved, or an invariant falls; else the end. */
    skip() {
      const moments = this.trace.moments;
      const isEvent = (one, i) =>
        i > this.index && (["moved", "fell"].includes(one.kind) || !same(one.queues, moments[i - 1].queues));
      const next = moments.findIndex(isEvent);
      this.go((next < 0 ? moments.length : next) - this.index);
    }

    /** Shows another trace. */
    load(trace, index = 0) {
      this.stop();
      this.traces = new Map([[trace.name, trace]]);
      this.width = null;
      this.open(trace.name, index);
    }

    play() {
      if (this.index === this.trace.moments.length - 1) this.show(0);
      this.timer = -1;
      this.schedule();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = 0;
      this.drawToggle();
    }

    /** The next moment comes when this one's caption has been read. */
    schedule() {
      if (this.timer) {
        clearTimeout(this.timer);
        const milliseconds = (1000 + 42 * this.moment.says.length) / Number(this.speed.value);
        this.timer = setTimeout(() => {
          if (this.index === this.trace.moments.length - 1) return this.stop();
          this.show(this.index + 1);
          this.schedule();
        }, milliseconds);
      }
      this.drawToggle();
    }

    drawToggle() {
      const playing = Boolean(this.timer);
      const label = playing ? "Pause" : "Play";
      if (this.toggle.title === label && this.toggle.dataset.playing !== undefined) return;
      this.toggle.dataset.playing = playing;
      this.toggle.title = label;
      this.toggle.setAttribute("aria-label", label);
      this.toggle.replaceChildren(icon(playing ? "pause" : "play"));
    }

    /** [scenario, index] of an address that ends in #scenario/3, else []. */
    fromAddress(hash) {
      const [name, number] = decodeURIComponent(hash.slice(1)).split("/");
      return this.traces.has(name) ? [name, (Number.parseInt(number, 10) || 1) - 1] : [];
    }

    show(index) {
      const moments = this.trace.moments;
      const next = Math.max(0, Math.min(index, moments.length - 1));
      if (next === this.index) return;
      const forward = next === this.index + 1;
      this.index = next;
      this.moment = moments[next];
      this.before = moments[next - 1] ?? this.moment;
      this.draw();
      if (forward && !calm.matches) this.fly();
      if (this.alone) this.writeAddress();
      this.onMoment?.(this.index);
    }

    /** Not at once: browsers refuse an address that changes too often, as it would in scrubbing. */
    writeAddress() {
      clearTimeout(this.writing);
      this.writing = setTimeout(() => {
        history.replaceState(null, "", `#${this.trace.name}/${this.index + 1}`);
      }, 400);
    }

    paint(seq) {
      return paintOf(this.moment, seq, this.colour.get(seq.request));
    }

    // --- drawing a moment -----------------------------------------------------------------------

    draw() {
      for (const ghost of this.stage.querySelectorAll(".is-ghost")) ghost.remove();
      const { step, kind, says } = this.moment;
      const total = this.trace.moments.length;
      this.badge.textContent = `step ${step} · ${KINDS[kind]}`;
      this.badge.dataset.kind = kind;
      this.says.textContent = says;
      this.scrub.value = this.index;
      this.scrub.setAttribute("aria-valuetext", `moment ${this.index + 1} of ${total}, step ${step}`);
      this.count.textContent = `${this.index + 1} / ${total}`;
      this.queues.replaceChildren(...Object.keys(this.moment.queues).map((name) => this.queue(name)));
      this.seqs.replaceChildren(...this.moment.seqs.map((seq) => this.sequence(seq)));
      this.gpu.replaceChildren(...this.moment.gpu.map((_, block) => this.block("gpu", block)));
      this.cpu.replaceChildren(...this.moment.cpu.map((_, block) => this.block("cpu", block)));
      this.cpuPart.hidden = this.moment.cpu.length === 0;
      const free = this.moment.free;
      const next = this.trace.fifo ? free[0] : free[free.length - 1];
      this.gpuNote.textContent = free.length
        ? `${free.length} of ${this.moment.gpu.length} free, ${next} is next`
        : "none is free";
      this.highlight(this.pinned);
    }

    queue(name) {
      const was = this.before.queues[name];
      const chips = this.moment.queues[name].map((request) =>
        h("span", { class: classes("replay-chip", `is-${this.colour.get(request)}`, !was.includes(request) && "is-changed") }, request)
      );
      return h("div", { class: "replay-queue", "data-queue": name }, h("span", { class: "replay-queue-name" }, name), ...chips);
    }

    sequence(seq) {
      const { name, request, status, words, prompt, computed, table } = seq;
      const before = this.before.seqs.find((one) => one.name === name);
      const attributes = {
        class: classes("replay-seq", `is-${this.colour.get(request)}`, `is-${status}`, !before && "is-changed"),
        role: "listitem", "data-seq": name, "data-table": table.join(" "),
        style: `--paint: ${this.paint(seq)}`,
      };
      const state = { finished: "finished", waiting: "waits" }[status] ?? `${computed} of ${words.length} in memory`;
      const title = h("h5", {}, name, h("span", { class: "replay-note" }, status === "swapped" ? "swapped out" : state));
      if (status === "finished") {
        const said = h("p", {}, `${words.slice(0, prompt).join(" ")} `, h("b", {}, words.slice(prompt).join(" ")));
        return h("div", attributes, title, said);
      }
      const size = this.trace.block_size;
      const number = Math.max(table.length, Math.ceil(words.length / size));
      const blocks = Array.from({ length: number }, (_, logical) => this.logical(seq, before, logical));
      return h("div", attributes, title, h("div", { class: "replay-logical-row" }, blocks));
    }

    logical(seq, before, logical) {
      const size = this.trace.block_size;
      const block = seq.table[logical];
      const changed = block !== undefined && (before?.table[logical] !== block || before?.device !== seq.device);
      const where = block === undefined ? "–" : seq.device === "cpu" ? `CPU ${block}` : `${block}`;
      const cells = Array.from({ length: size }, (_, offset) => {
        const position = logical * size + offset;
        const now = position >= (seq.now[0] ?? 0) && position < (seq.now[1] ?? 0);
        const state = seq.words[position] === undefined ? "is-empty" : position < seq.computed ? "is-computed" : "is-pending";
        const fresh = position in seq.words && position >= (before?.words.length ?? seq.prompt);
        return h("span", { class: classes("replay-cell", state, now && "is-now", fresh && "is-fresh") }, seq.words[position] ?? "");
      });
      return h("div",
        {
          class: classes("replay-logical", changed && "is-changed", block === undefined && "is-nowhere"),
          "data-key": `${seq.name}/${logical}`,
          "aria-label": `${seq.name}, logical block ${logical}: ${block === undefined ? "no block yet" : `in ${seq.device.toUpperCase()} block ${block}`}`,
        },
        h("div", { class: "replay-map" }, h("span", {}, `${logical}`), h("span", { "aria-hidden": "true" }, "→"), h("b", { class: "replay-entry" }, where)),
        h("div", { class: "replay-cells" }, cells));
    }

    block(device, block) {
      const size = this.trace.block_size;
      const { refs, holds } = this.moment[device][block];
      const was = this.before[device][block];
      const holders = holdersOf(this.moment, device, block);
      const cached = device === "gpu" && this.moment.cached.includes(block);
      const wasCached = device === "gpu" && this.before.cached.includes(block);
      const awaited = this.moment.kind === "plan" && this.moment.moves.some((move) => ends(move)[1] === `${device}:${block}`);
      const valid = awaited ? 0 : Math.max(0, ...holders.map(({ seq, logical }) => seq.computed - logical * size));
      const cells = Array.from({ length: size }, (_, offset) => {
        const word = holds[offset] ?? "";
        const stale = cached && refs === 0 ? false : offset >= valid;
        const fresh = word !== (was.holds[offset] ?? "");
        return h("span", { class: classes("replay-cell", word === "" ? "is-empty" : stale ? "is-stale" : "is-computed", fresh && "is-fresh") }, word);
      });
      const names = inWords(holders);
      const paint = holders.map(({ seq }) => this.paint(seq));
      const style = paint.length ? `--one: ${paint[0]}; --two: ${paint[paint.length - 1]}` : false;
      return h("div",
        {
          class: classes("replay-block", refs === 0 && "is-free", refs > 1 && "is-shared", cached && "is-cached",
            (refs !== was.refs || !same(holds, was.holds) || cached !== wasCached) && "is-changed"),
          style, role: "listitem", "data-key": `${device}:${block}`, [`data-${device}`]: block, "data-refs": refs,
          "aria-label": `${device.toUpperCase()} block ${block}, ${refs ? `held by ${names}` : "free"}: ${holds.filter(Boolean).join(" ") || "never used"}`,
        },
        h("div", { class: "replay-map" },
          h("b", {}, `${block}`),
          h("span", { class: "replay-holders" }, names || (cached ? "free, kept" : "free")),
          cached && h("span", { class: "replay-cached", title: "known by its content" }, "◆"),
          h("span", { class: classes("replay-refs", refs > was.refs && "is-up", refs < was.refs && "is-down"), title: "reference count" }, `×${refs}`)),
        h("div", { class: "replay-cells" }, cells));
    }

    // --- what belongs together ------------------------------------------------------------------

    element(key) {
      return this.stage.querySelector(`[data-key="${CSS.escape(key)}"]`);
    }

    /** Pairs of keys (logical block, physical block) that a key is part of. */
    pairs(key) {
      return this.moment.seqs.flatMap((seq) =>
        seq.table.map((block, logical) => [`${seq.name}/${logical}`, `${seq.device}:${block}`])
      ).filter((pair) => pair.includes(key));
    }

    highlight(key) {
      this.lit = key === null || this.element(key) === null ? [] : this.pairs(key);
      for (const one of this.stage.querySelectorAll(".is-lit")) one.classList.remove("is-lit");
      for (const one of this.lit.flat()) this.element(one)?.classList.add("is-lit");
      this.stage.classList.toggle("has-lit", this.lit.length > 0);
      this.drawLines();
    }

    /** Lines of what is highlighted, and arrows for blocks that are copied. */
    drawLines() {
      if (!this.moment) return;
      const origin = this.stage.getBoundingClientRect();
      this.lines.setAttribute("viewBox", `0 0 ${origin.width} ${origin.height}`);
      const line = (from, to, kind) => {
        const [a, b] = [from, to].map((key) => this.element(key)?.getBoundingClientRect());
        if (!a || !b) return [];
        const path = s("path", { d: curve(a, b, origin), class: `replay-line is-${kind}` });
        const tip = path.getAttribute("d").split(" ").pop().split(",");
        return [path, s("circle", { cx: tip[0], cy: tip[1], r: 4, class: `replay-tip is-${kind}` })];
      };
      const moves = this.moment.kind === "written" ? [] : this.moment.moves;
      const kind = this.moment.kind === "plan" ? "planned" : "move";
      this.lines.replaceChildren(
        ...this.lit.flatMap(([from, to]) => line(from, to, "link")),
        ...moves.flatMap((move) => line(...ends(move), kind))
      );
    }

    /** Blocks that are copied fly to where they go. */
    fly() {
      if (this.moment.kind !== "moved") return;
      for (const move of this.moment.moves) {
        const [from, to] = ends(move).map((key) => this.element(key));
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

  function ends({ kind, from, to }) {
    return [`${kind === "in" ? "cpu" : "gpu"}:${from}`, `${kind === "out" ? "cpu" : "gpu"}:${to}`];
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

  window.Replay = Replay;

  function start() {
    for (const root of document.querySelectorAll(".replay:not(.replay--made)")) new Replay(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
