/*
 * The code that lights up, as `window.CodeLit`: the lines of the oracle that ran in a moment of the playground
 * (playground/lines.py), with their values, to be stepped through line by line.
 *
 * It is off until a reader asks for it. A moment's lines are asked of Python when the moment is shown.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const { path, code, outline, inWords } = window.codeLitDrawing;

  class CodeLit {
    /** `ask(index)` resolves to what playground.lines.lit found, or null; `changed()` is told of each cursor. */
    constructor(ask, changed = () => {}) {
      this.ask = ask;
      this.changed = changed;
      this.found = null;
      this.cursor = 0; // a number of found.events
      this.box = h("input", { type: "checkbox", onchange: () => this.turn(this.box.checked) });
      this.toggle = h("label", { class: "lit-toggle" }, this.box, h("span", {}, "Show the code that runs"));
      this.status = h("p", { class: "lit-status", role: "status" });
      this.live = h("p", { class: "lit-live", "aria-live": "polite" });
      const button = (name, label, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, name);
      this.scrub = h("input", { type: "range", min: 0, value: 0, "aria-label": "Line", oninput: () => this.go(Number(this.scrub.value)) });
      this.count = h("span", { class: "lit-count" });
      this.controls = h("div", { class: "lit-controls", role: "group", "aria-label": "Line by line" },
        button("▲", "One line back (k)", () => this.go(this.cursor - 1)),
        button("▼", "One line forward (j)", () => this.go(this.cursor + 1)),
        button("◆", "To the next decision (d)", () => this.decide()),
        this.scrub, this.count);
      this.decisions = h("ul", { class: "lit-decisions", "aria-label": "What was decided" });
      this.path = h("p", { class: "lit-path" });
      this.code = h("div", { class: "lit-code", tabindex: 0, role: "group", "aria-label": "The function that runs; ↓ and ↑ go by line", onkeydown: (event) => this.arrow(event) });
      this.outline = h("div", {});
      this.parts = h("div", { class: "lit-parts" }, this.controls, this.decisions, this.path, this.code, this.live,
        h("details", { class: "playground-part lit-outline" }, h("summary", {}, "Functions that ran"), this.outline));
      this.element = h("section", { class: "lit", "aria-label": "The code that runs", hidden: "" }, this.status, this.parts);
      document.addEventListener("keydown", (event) => this.key(event));
    }

    get on() {
      return this.box.checked;
    }

    turn(on, cursor = null) {
      this.box.checked = on;
      this.element.hidden = !on;
      this.element.parentElement?.classList.toggle("has-code", on);
      if (on && this.index !== undefined) this.show(this.index, cursor);
      this.changed();
    }

    /** Another moment is shown. Its lines come a little later, since a reader may go on at once. */
    moment(index) {
      this.index = index;
      clearTimeout(this.timer);
      if (this.on) this.timer = setTimeout(() => this.show(index), 120);
    }

    async show(index, cursor = null) {
      this.element.dataset.shows = ""; // not yet
      const found = await this.ask(index);
      if (index !== this.index || !this.on || found === null) return;
      this.found = found;
      const events = found.events ?? [];
      this.parts.hidden = events.length === 0;
      this.status.textContent = found.error ?? (events.length ? this.summary() : "Nothing of the scheduler or the block manager ran here.");
      if (events.length) {
        this.scrub.max = events.length - 1;
        this.decisions.replaceChildren(...found.decisions.map((one) =>
          h("li", {}, h("button", { type: "button", onclick: () => this.go(one.decided) }, one.says))));
        this.outline.replaceChildren(outline(this));
        this.go(cursor ?? found.decisions[0]?.decided ?? 0);
      }
      this.element.dataset.shows = index;
    }

    summary() {
      const { functions, events, decisions, cut } = this.found;
      const planted = functions.some((one) => one.instead) ? " A planted fault took the place of a rule: it is among these." : "";
      const kept = cut ? ` Only the first ${events.length} are kept.` : "";
      const decided = decisions.length ? " Each decision leads to the line that made it:" : "";
      return `${functions.length} functions, ${events.length} lines ran in this moment.${kept}${planted}${decided}`;
    }

    go(number) {
      const { events, decisions } = this.found;
      this.cursor = Math.max(0, Math.min(number, events.length - 1));
      const event = events[this.cursor];
      this.scrub.value = this.cursor;
      this.count.textContent = `${this.cursor + 1} / ${events.length}`;
      this.path.replaceChildren(...path(this, event.call));
      this.code.replaceChildren(...code(this, event));
      for (const [i, one] of decisions.entries()) {
        const button = this.decisions.children[i].firstChild;
        if (one.decided === this.cursor) button.setAttribute("aria-current", "true");
        else button.removeAttribute("aria-current");
      }
      this.live.textContent = inWords(this, event);
      this.center();
      this.changed();
    }

    /** The current line in the middle of the box; the page itself stays where it is. */
    center() {
      const line = this.code.querySelector("[aria-current]");
      if (!line) return;
      const [box, at] = [this.code, line].map((one) => one.getBoundingClientRect());
      this.code.scrollTop += at.top - box.top - (box.height - at.height) / 2;
    }

    decide() {
      const places = this.found.decisions.map((one) => one.decided).sort((a, b) => a - b);
      const next = places.find((place) => place > this.cursor) ?? places[0];
      if (next !== undefined) this.go(next);
    }

    key(event) {
      const elsewhere = event.target.closest?.("input:not([type=range]), select, textarea, [contenteditable]");
      if (!this.on || !this.found?.events?.length || elsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
      const actions = { j: () => this.go(this.cursor + 1), k: () => this.go(this.cursor - 1), d: () => this.decide() };
      if (!(event.key in actions)) return;
      event.preventDefault();
      actions[event.key]();
    }

    arrow(event) {
      const places = { ArrowDown: this.cursor + 1, ArrowUp: this.cursor - 1, Home: 0, End: Infinity };
      if (!(event.key in places) || event.target !== this.code) return;
      event.preventDefault();
      event.stopPropagation();
      this.go(places[event.key]);
    }
  }

  window.CodeLit = CodeLit;
})();
