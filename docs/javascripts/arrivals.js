/*
 * The front page's moving picture: the same requests at two servers, one that reserves memory and one that pages.
 * scripts/tutorial/arrivals.py has served them when the site was built; here the frames are shown, one a step.
 *
 * A page holds <div class="arrivals"><script type="application/json">{slots, longest, block, cards, frames}</script></div>.
 * It starts as it comes into view, stops when it leaves it, and stands still for whoever wants no motion.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const PAINTS = "abcdef";
  const STEP_MS = 280;
  const HOLD_MS = 5000; // at the end, before it starts again
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  /** Half of the picture: a card with its counters, and its memory as boxes of `size` slots. */
  class Card {
    constructor(known, name) {
      this.frames = known.frames[name];
      this.paged = name === "paged"; // else a request has one piece, and says at which slot it starts
      this.size = this.paged ? known.block : known.longest;
      this.slots = known.slots;
      this.boxes = Array.from({ length: this.slots / this.size }, () => h("div", { class: "arrivals-box" }, h("i", {}), h("span", {})));
      this.memory = h("div", { class: "arrivals-memory", role: "img", style: `--columns: ${known.longest / this.size}` }, this.boxes);
      this.counts = {};
      const count = (key, label) => h("div", {}, h("dt", {}, label), (this.counts[key] = h("dd", { "data-count": key })));
      const { title, about } = known.cards[name];
      this.element = h("section", { class: "arrivals-card", "data-card": name, "aria-label": title },
        h("h3", {}, title), h("p", {}, about), this.memory,
        h("dl", {}, count("served", "tokens served"), count("running", "in flight"), count("waiting", "waiting")));
    }

    show(step) {
      const frame = this.frames[step];
      for (const [key, element] of Object.entries(this.counts)) element.textContent = frame[key];
      const held = new Map();
      for (const [number, stored, ...where] of frame.requests) {
        where.forEach((place, i) => {
          held.set(this.paged ? place : place / this.size, { number, filled: Math.min(this.size, stored - i * this.size) });
        });
      }
      this.boxes.forEach((box, i) => this.draw(box, held.get(i)));
      const stored = frame.requests.reduce((sum, [, tokens]) => sum + tokens, 0);
      const kept = held.size * this.size;
      this.memory.setAttribute("aria-label", `Memory for ${this.slots} tokens: ${kept} are kept for ${frame.running} requests, which have stored ${stored}.`);
    }

    draw(box, held) {
      const [fill, name] = box.children;
      box.classList.toggle("is-kept", Boolean(held));
      name.textContent = held ? held.number + 1 : "";
      fill.style.width = `${held ? (100 * Math.max(0, held.filled)) / this.size : 0}%`;
      if (held) fill.style.background = `var(--figure-${PAINTS[held.number % PAINTS.length]})`;
    }
  }

  class Scene {
    constructor(root) {
      const known = JSON.parse(root.querySelector("script").textContent);
      this.cards = Object.keys(known.frames).map((name) => new Card(known, name));
      this.last = Math.min(...this.cards.map((card) => card.frames.length)) - 1;
      this.button = h("button", { type: "button", onclick: () => this.want(!this.wanted) });
      this.slider = h("input", { type: "range", min: 1, max: this.last + 1, "aria-label": "Step", oninput: () => { this.want(false); this.go(this.slider.value - 1); } });
      this.at = h("span", { class: "arrivals-at" });
      root.prepend(h("div", { class: "arrivals-cards" }, this.cards.map((card) => card.element)),
        h("div", { class: "arrivals-controls" }, this.button, this.slider, this.at));
      this.timer = 0;
      this.seen = false;
      new IntersectionObserver((entries) => { this.seen = entries.at(-1).isIntersecting; this.run(); }).observe(root);
      this.go(calm.matches ? this.last : 0);
      this.want(!calm.matches);
    }

    /** Whether it moves as long as it is in view. */
    want(wanted) {
      this.wanted = wanted;
      this.button.textContent = wanted ? "Pause" : "Play";
      this.run();
    }

    run() {
      clearTimeout(this.timer);
      if (!this.wanted || !this.seen) return;
      const wait = this.step === this.last ? HOLD_MS : STEP_MS;
      this.timer = setTimeout(() => {
        this.go(this.step === this.last ? 0 : this.step + 1);
        this.run();
      }, wait);
    }

    go(step) {
      this.step = Number(step);
      this.slider.value = this.step + 1;
      this.at.textContent = `step ${this.step + 1} of ${this.last + 1}`;
      for (const card of this.cards) card.show(this.step);
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".arrivals")) new Scene(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
