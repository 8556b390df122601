/*
 * Paste your trace: any engine's trace, checked by the invariants and replayed in the block map.
 *
 * A page holds <div class="paste-trace"> with one <script type="application/json" data-name="NAME"> an example
 * in it. Python checks (playground/check_trace.py), and is fetched at the first check.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const here = document.currentScript.src;
  const MOST = 20e6; // bytes of a file

  class PasteTrace {
    constructor(root) {
      this.root = root;
      this.links = JSON.parse(root.dataset.sections); // where docs/correctness.md has each invariant
      const examples = [...root.querySelectorAll("script[data-name]")];
      this.text = h("textarea", { rows: 5, spellcheck: "false", "aria-label": "A trace, as JSON", placeholder: '{"engine": {"name": …' });
      const file = h("input", { type: "file", accept: ".json,application/json", "aria-label": "A file with a trace", onchange: () => this.read(file.files[0]) });
      this.button = h("button", { type: "button", class: "playground-start", onclick: () => this.check() }, "Check it");
      this.status = h("p", { class: "playground-status", role: "status" });
      this.verdict = h("div", { class: "paste-verdict", role: "region", "aria-label": "What was found", tabindex: -1 });
      this.room = h("div", { class: "replay replay--made" });
      this.room.hidden = true;
      const samples = examples.map((one) => h("button", { type: "button", onclick: () => this.open(one.textContent.trim()) }, one.dataset.name));
      root.append(this.text, h("div", { class: "playground-buttons" }, this.button, file),
        h("p", {}, "Or an example: "), h("div", { class: "playground-buttons" }, samples), this.status, this.verdict, this.room);
      this.replay = new window.Replay(this.room);
      if (!window.oracle.supported) {
        for (const one of [this.button, file, ...samples]) one.disabled = true;
        this.status.textContent = `${window.oracle.why} On a command line, python -m playground.check_trace FILE does the same.`;
      }
    }

    async read(file) {
      if (!file) return;
      if (file.size > MOST) this.status.textContent = `${file.name} has ${Math.ceil(file.size / 1e6)} MB, and ${MOST / 1e6} at most are read here.`;
      else await this.open(await file.text());
    }

    async open(text) {
      this.text.value = text;
      await this.check();
    }

    async check() {
      this.verdict.replaceChildren();
      this.room.hidden = true;
      let trace;
      try {
        trace = JSON.parse(this.text.value);
      } catch (error) {
        this.status.textContent = `This is no JSON: ${error.message}`;
        return;
      }
      let found;
      try {
        await window.oracle.load((line) => { this.status.textContent = `${line} …`; });
        this.status.textContent = "checking …";
        found = await window.oracle.call("playground.check_trace", "check", trace);
      } catch (error) {
        found = { error: error.message };
      }
      if (found.error) this.status.textContent = `Not checked: ${found.error}.`;
      else this.show(found, trace.steps.length);
    }

    show({ fell, checked, not_checked: not, notes, trace }, steps) {
      const names = Object.keys(checked);
      const held = names.filter((name) => !fell.some(({ invariant }) => invariant === name));
      const link = (name) => h("a", { href: new URL(`../correctness/#${this.links[name]}`, here) }, name);
      const listed = (all) => all.flatMap((name, i) => [i > 0 && ", ", link(name)]).filter(Boolean);
      this.status.textContent = `${steps} steps of ${trace.title}: ${fell.length ? `${fell.length} of ${names.length} invariants fell.` : `all ${names.length} invariants that it can show hold.`}`;
      const falls = fell.map((one) => h("li", {}, h("b", {}, link(one.invariant), ` fell in step ${one.step}`), `: ${one.says}. `, h("q", {}, one.sentence), " ",
        h("button", { type: "button", onclick: () => this.goTo(one) }, "Show the moment")));
      const why = Object.entries(not).map(([name, reason]) => h("li", {}, link(name), `: not checked, ${reason}.`));
      this.verdict.replaceChildren(...[
        fell.length > 0 && h("ul", { class: "paste-fell" }, falls),
        h("p", {}, h("b", {}, "Held: "), ...(held.length ? listed(held) : ["none"]), "."),
        why.length > 0 && h("ul", {}, why), ...notes.map((note) => h("p", {}, note))].filter(Boolean));
      this.room.hidden = trace.moments.length === 0;
      if (trace.moments.length) this.replay.load(trace, Math.max(0, trace.moments.findIndex(({ kind }) => kind === "fell")));
      this.verdict.focus({ preventScroll: true });
    }

    goTo({ invariant }) {
      const place = this.replay.trace.moments.findIndex(({ kind, says }) => kind === "fell" && says.startsWith(`${invariant} `));
      if (place >= 0) this.replay.go(place - this.replay.index);
      this.room.scrollIntoView({ block: "start" });
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".paste-trace")) new PasteTrace(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
