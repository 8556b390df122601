/*
 * Replays what the reference engine did: docs/traces/*.json, written by `python -m playground.trace`.
 *
 * A page holds <div class="replay"> with one <script type="application/json" data-trace="NAME"> a
 * scenario in it, so it works without a server, too. Each moment of a trace is the whole state; it
 * is drawn from scratch, and compared with the moment before it to mark what has changed.
 */
(() => {
  "use strict";

  const { icon, controls, stage, memory } = window.replayParts;
  const { same, queue, slot, sequence, physicalBlock } = window.replayDrawing;

  const KINDS = {
    arrive: "a request arrives",
    plan: "the scheduler plans",
    moved: "blocks are copied",
    written: "the model writes",
    drawn: "words are drawn",
    fell: "an invariant falls",
  };
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  class Replay {
    constructor(root) {
      this.root = root;
      const scripts = [...root.querySelectorAll("script[data-trace]")];
      this.traces = new Map(scripts.map((one) => [one.dataset.trace, JSON.parse(one.textContent)]));
      this.alone = "links" in root.dataset; // the page is about this replay: it may have the address
      this.everywhere = this.alone || "keys" in root.dataset; // its keys work wherever a reader is
      this.timer = 0;
      this.pinned = null;
      this.root.append(...controls(this), stage(this));
      this.lines = new window.replayLines.Lines(this.stage);
      if (this.traces.size < 2) this.root.classList.add("replay--one");
      this.listen();
      const [name, index] = this.alone ? this.fromAddress(window.location.hash) : [];
      if (this.traces.size > 0) this.open(name ?? this.traces.keys().next().value, index ?? 0);
    }

    listen() {
      const find = (event) => event.target.closest?.("[data-key]")?.dataset.key ?? null;
      this.stage.addEventListener("pointerover", (event) => {
        if (event.pointerType === "mouse") this.lines.highlight(find(event) ?? this.pinned);
      });
      this.stage.addEventListener("pointerleave", () => this.lines.highlight(this.pinned));
      this.stage.addEventListener("click", (event) => {
        const key = find(event);
        this.pinned = key === this.pinned ? null : key;
        this.lines.highlight(this.pinned);
      });
      this.root.tabIndex = -1; // so that its keys work once somebody has clicked into it
      (this.everywhere ? document : this.root).addEventListener("keydown", (event) => this.key(event));
      if (this.alone) {
        window.addEventListener("hashchange", (event) => {
          const [name, index] = this.fromAddress(new URL(event.newURL).hash);
          if (name) { this.stop(); this.open(name, index); }
        });
      }
      new ResizeObserver(() => {
        this.reserve();
        this.lines.draw();
      }).observe(this.stage);
    }

    key(event) {
      if (!this.trace || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.target.closest?.("input, select, textarea, [contenteditable]")) return;
      if (event.key === " " && event.target.closest?.("button, a, summary")) return;
      const move = (by) => (event.shiftKey ? this.goStep(by) : this.go(by));
      const actions = { " ": () => this.toggle.click(), ArrowLeft: () => move(-1), ArrowRight: () => move(1), e: () => this.skip() };
      if (!(event.key in actions)) return;
      event.preventDefault();
      actions[event.key]();
    }

    // --- moving through time --------------------------------------------------------------------

    open(name, index) {
      this.trace = this.traces.get(name);
      this.colours = new window.replayColours.Colours(this.trace);
      memory(this, this.trace.devices ?? 1);
      this.chooser.value = name;
      this.about.textContent = this.trace.about;
      this.scrub.max = this.trace.moments.length - 1;
      this.pinned = null;
      this.index = -1;
      this.reserve();
      this.show(index);
      this.schedule();
    }

    /** Room for the longest caption, so that nothing below it jumps; but not for one that fills a phone. */
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
      this.says.style.minHeight = `${Math.min(Math.max(...heights), innerHeight / 5)}px`;
    }

    go(by) {
      this.stop();
      this.show(this.index + by);
    }

    /** To where the next step begins, or the end; back: to where this one began, or the one before. */
    goStep(by) {
      const { moments } = this.trace;
      const begins = moments.map((_, i) => i).filter((i) => moments[i].step !== moments[i - 1]?.step);
      const found = by > 0 ? begins.find((i) => i > this.index) : begins.findLast((i) => i < this.index);
      this.go((found ?? (by > 0 ? moments.length : 0)) - this.index);
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
      if (next === this.index || this.gate?.(next) === false) return;
      const forward = next === this.index + 1;
      this.index = next;
      this.moment = moments[next];
      this.before = moments[next - 1] ?? this.moment;
      this.draw();
      if (forward && !calm.matches) this.lines.fly();
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

    // --- drawing a moment -----------------------------------------------------------------------

    draw() {
      const { step, kind, says } = this.moment;
      const total = this.trace.moments.length;
      this.badge.textContent = `step ${step} · ${KINDS[kind]}`;
      this.badge.dataset.kind = kind;
      this.says.textContent = says;
      this.scrub.value = this.index;
      this.scrub.setAttribute("aria-valuetext", `moment ${this.index + 1} of ${total}, step ${step}`);
      this.count.textContent = `${this.index + 1} / ${total}`;
      this.queues.replaceChildren(...Object.keys(this.moment.queues).map((name) => queue(this, name)));
      this.slots.replaceChildren(...(this.moment.slots ?? []).map((_, i) => slot(this, i)));
      this.slots.hidden = !this.moment.slots;
      this.seqs.replaceChildren(...this.moment.seqs.map((seq) => sequence(this, seq)));
      for (const one of this.pools) this.drawMemory(one);
      this.lines.show(this.moment, this.pinned, this.pools.length);
    }

    drawMemory({ rank, gpu, cpu, cpuPart, note }) {
      const { free } = this.moment;
      gpu.replaceChildren(...this.moment.gpu.map((_, i) => physicalBlock(this, "gpu", i, rank)));
      cpu.replaceChildren(...this.moment.cpu.map((_, i) => physicalBlock(this, "cpu", i, rank)));
      cpuPart.hidden = this.moment.cpu.length === 0;
      const next = this.trace.fifo ? free[0] : free[free.length - 1];
      note.textContent = free.length
        ? `${free.length} of ${this.moment.gpu.length} free, ${next} is next`
        : "none is free";
    }
  }

  window.Replay = Replay;

  function start() {
    for (const root of document.querySelectorAll(".replay:not(.replay--made)")) new Replay(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
