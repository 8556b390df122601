/*
 * A request moves through the diagram of the system: <div class="journey" data-stops="[...]">, whose
 * boxes are links (scripts/tutorial/journey.py). A small one moves by itself.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const SECONDS = 3.2; // at a stop
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  class Journey {
    constructor(root) {
      this.root = root;
      this.small = root.classList.contains("journey--small");
      this.stops = JSON.parse(root.dataset.stops);
      this.number = h("span", { class: "journey-number" });
      this.title = h("b", {});
      this.says = h("span", {});
      this.data = h("code", { class: "journey-data" });
      const button = (label, sign, action) =>
        h("button", { type: "button", "aria-label": label, title: label, onclick: action }, sign);
      this.toggle = button("Play", "▶", () => (this.timer ? this.stop() : this.play()));
      const controls = h("div", { class: "journey-controls", role: "group", "aria-label": "The request's way" },
        button("One stop back", "←", () => this.go(-1)), this.toggle,
        button("One stop forward", "→", () => this.go(1)), this.number);
      root.append(h("div", { class: "journey-panel" }, controls, // what moves by itself is not read aloud
        h("div", { "aria-live": this.small ? "off" : "polite" }, h("p", {}, this.title, " ", this.says), !this.small && this.data)));
      root.addEventListener("keydown", (event) => this.key(event));
      this.show(0);
      if (this.small && !calm.matches) this.play();
    }

    key(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.go(by);
    }

    go(by) {
      this.stop();
      this.show(this.index + by);
    }

    play() {
      this.timer = setInterval(() => this.show(this.index + 1), 1000 * SECONDS);
      this.drawToggle("Pause", "❚❚");
    }

    stop() {
      clearInterval(this.timer);
      this.timer = 0;
      this.drawToggle("Play", "▶");
    }

    drawToggle(label, sign) {
      this.toggle.textContent = sign;
      this.toggle.title = label;
      this.toggle.setAttribute("aria-label", label);
    }

    show(index) {
      this.index = (index + this.stops.length) % this.stops.length;
      const { box, title, says, data } = this.stops[this.index];
      for (const one of this.root.querySelectorAll(".journey-box")) {
        one.classList.toggle("is-here", one.dataset.box === box);
      }
      this.number.textContent = `${this.index + 1} / ${this.stops.length}`;
      this.title.textContent = `${title}.`;
      this.says.textContent = says;
      this.data.textContent = data;
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".journey")) new Journey(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
