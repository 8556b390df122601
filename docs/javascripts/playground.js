/*
 * The playground: a reader's settings, run by the oracle in the page, and drawn by replay.js.
 *
 * A page holds <div class="playground" data-settings="{...}">; with `data-links` the address keeps the
 * settings and the moment. Settings are those of playground/settings.py.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const FIELDS = [ // name, label, default, least, most
    ["block_size", "tokens in a block", 4, 1, 8],
    ["gpu_blocks", "GPU blocks", 9, 1, 40],
    ["cpu_blocks", "CPU blocks", 0, 0, 40],
    ["watermark_percent", "watermark, %", 1, 0, 50],
    ["budget", "tokens in a step", 32, 1, 64],
    ["seed", "seed of the words", 0, 0, 9999],
  ];
  const CHOICES = [
    ["scheduling", "scheduler", ["unified", "sosp", "sosp-mixed"]],
    ["preemption", "preemption", ["default", "recompute", "swap"]],
  ];
  const SWITCHES = [
    ["prefix_caching", "prefix caching", false],
    ["chunked_prefill", "chunked prefill", true],
  ];
  const OF_REQUEST = [
    ["n", "samples", 1, 1, 4],
    ["beams", "beams", 0, 0, 4],
    ["max_tokens", "words", 6, 1, 24],
    ["step", "arrives in step", 1, 1, 60],
  ];
  const MOST_REQUESTS = 6;

  function number(label, value, least, most, change) {
    const input = h("input", { type: "number", min: least, max: most, value, onchange: () => change(Number(input.value)) });
    return h("label", {}, h("span", {}, label), input);
  }

  function choice(label, known, value, change) {
    const select = h("select", { onchange: () => change(select.value) },
      known.map((one) => h("option", { value: one, selected: one === value ? "" : false }, one)));
    return h("label", {}, h("span", {}, label), select);
  }

  function toggle(label, value, change, title) {
    const input = h("input", { type: "checkbox", checked: value ? "" : false, onchange: () => change(input.checked) });
    return h("label", { class: "playground-switch", title: title ?? false }, input, h("span", {}, label));
  }

  class Playground {
    constructor(root) {
      this.root = root;
      this.links = "links" in root.dataset;
      const shared = this.fromAddress();
      this.settings = shared?.settings ?? JSON.parse(root.dataset.settings);
      this.moment = shared?.moment ?? 0;
      this.status = h("p", { class: "playground-status", role: "status" });
      this.button = h("button", { type: "button", class: "playground-start", onclick: () => this.begin() },
        this.root.dataset.label ?? "Start Python and play");
      root.append(this.button, this.status);
      if (!window.oracle.supported) {
        this.button.remove();
        this.status.textContent = "Served by a web server (as by `mkdocs serve`), this page runs the oracle here: a page that is opened as a file cannot start Python.";
        return;
      }
      if (shared) this.begin();
      window.addEventListener("hashchange", () => this.follow());
    }

    async begin() {
      this.button.disabled = true;
      try {
        await window.oracle.load((line) => { this.status.textContent = `${line} …`; });
        this.faults = await window.oracle.call("playground.session", "faults", null);
      } catch (error) {
        this.button.disabled = false;
        this.status.textContent = `Python cannot be had here: ${error.message}. The recorded scenes work without it.`;
        return;
      }
      this.button.remove();
      this.form = h("form", { class: "playground-form", onsubmit: (event) => event.preventDefault() });
      this.fell = h("div", { class: "playground-fell", role: "alert" });
      const replay = h("div", { class: "replay replay--made", "data-keys": this.links ? "" : false });
      this.root.append(this.form, this.fell, replay);
      this.replay = new window.Replay(replay);
      this.replay.onMoment = (index) => { this.moment = index; this.writeAddress(); };
      this.drawForm();
      await this.run(this.moment);
      replay.focus({ preventScroll: true }); // the button is gone; arrow keys step at once
    }

    // --- settings -------------------------------------------------------------------------------

    set(change, redraw = false) {
      this.settings = { ...this.settings, ...change };
      if (redraw) this.drawForm();
      return this.run(0);
    }

    setRequest(i, change) {
      const requests = this.settings.requests.map((one, k) => (k === i ? { ...one, ...change } : one));
      return this.set({ requests });
    }

    drawForm() {
      const { settings } = this;
      const numbers = FIELDS.map(([name, label, usual, least, most]) =>
        number(label, settings[name] ?? usual, least, most, (value) => this.set({ [name]: value })));
      const choices = CHOICES.map(([name, label, known]) =>
        choice(label, known, settings[name] ?? known[0], (value) => this.set({ [name]: value })));
      const switches = SWITCHES.map(([name, label, usual]) =>
        toggle(label, settings[name] ?? usual, (value) => this.set({ [name]: value })));
      this.form.replaceChildren(
        h("fieldset", { class: "playground-requests" }, h("legend", {}, "Requests"),
          settings.requests.map((one, i) => this.requestRow(one, i)), this.requestButtons()),
        h("fieldset", {}, h("legend", {}, "System"), numbers, choices, switches),
        h("fieldset", { class: "playground-faults" }, h("legend", {}, "Break it"), this.faultSwitches()));
    }

    requestRow(request, i) {
      const prompt = h("input", {
        type: "text", value: request.prompt, "aria-label": `Prompt of request ${"ABCDEF"[i]}`,
        onchange: () => this.setRequest(i, { prompt: prompt.value }),
      });
      const fields = OF_REQUEST.map(([name, label, usual, least, most]) =>
        number(label, request[name] ?? usual, least, most, (value) => this.setRequest(i, { [name]: value })));
      const drop = h("button", {
        type: "button", title: `Without ${"ABCDEF"[i]}`, "aria-label": `Remove request ${"ABCDEF"[i]}`,
        onclick: () => this.set({ requests: this.settings.requests.filter((_, k) => k !== i) }, true),
      }, "×");
      return h("div", { class: `playground-request is-${"abcdef"[i]}` }, h("b", {}, "ABCDEF"[i]), prompt, fields,
        this.settings.requests.length > 1 && drop);
    }

    requestButtons() {
      const add = h("button", {
        type: "button", disabled: this.settings.requests.length >= MOST_REQUESTS ? "" : false,
        onclick: () => this.set({ requests: [...this.settings.requests, { prompt: "To be or" }] }, true),
      }, "One more");
      const random = h("button", { type: "button", onclick: () => this.random() }, "Random requests");
      return h("div", { class: "playground-buttons" }, add, random);
    }

    async random() {
      const seed = Math.floor(Math.random() * 10000);
      const requests = await this.result("playground.session", "draw", { seed, count: 3 });
      if (requests) await this.set({ requests, seed }, true);
    }

    faultSwitches() {
      const chosen = this.settings.breaks ?? [];
      return Object.entries(this.faults).map(([name, { says, example }]) => {
        const flip = (on) => {
          const others = (this.settings.breaks ?? []).filter((one) => one !== name);
          return this.set({ breaks: on ? [...others, name] : others }, true);
        };
        const open = h("button", { type: "button", class: "playground-example", title: "Open the smallest example that was found",
          onclick: () => this.open(example) }, "smallest example");
        return h("div", { class: "playground-fault" }, toggle(name, chosen.includes(name), flip), h("span", {}, says), open);
      });
    }

    open(settings) {
      this.settings = settings;
      this.drawForm();
      return this.run(Infinity);
    }

    // --- running --------------------------------------------------------------------------------

    /** Of a Python function; null, and a line in the page, if there is none. */
    async result(module, name, argument) {
      try {
        return await window.oracle.call(module, name, argument);
      } catch (error) {
        this.status.textContent = error.message;
        return null;
      }
    }

    async run(index) {
      const asked = (this.asked = JSON.stringify(this.settings));
      let found;
      try {
        found = await window.oracle.call("playground.session", "run", this.settings);
      } catch (error) {
        found = { error: error.message };
      }
      if (asked !== this.asked) return; // there are newer settings
      this.root.dataset.ran = asked;
      if (found.error) {
        this.status.textContent = found.error;
        return;
      }
      const steps = found.trace.moments.at(-1)?.step ?? 0;
      const refused = Object.values(found.refused);
      this.status.textContent = [`${steps} steps.`, ...refused.map((one) => `Refused: ${one}`)].join(" ");
      this.drawFell(found.fell);
      this.replay.root.hidden = found.trace.moments.length === 0;
      if (found.trace.moments.length) this.replay.load(found.trace, Math.min(index, found.trace.moments.length - 1));
      this.writeAddress();
    }

    drawFell(fell) {
      this.fell.replaceChildren();
      if (!fell) return;
      const show = h("button", { type: "button", onclick: () => this.replay.go(Infinity) }, "Show the moment");
      const less = h("button", { type: "button", onclick: () => this.smaller() }, "Make it smaller");
      this.fell.append(
        h("p", {}, h("b", {}, `${fell.invariant} falls in step ${fell.step}`), `: ${fell.title}. ${fell.says}.`),
        h("div", { class: "playground-buttons" }, show, (this.settings.breaks ?? []).length > 0 && less));
    }

    async smaller() {
      this.status.textContent = "leaving out what is not needed …";
      const asked = this.settings;
      const found = await this.result("playground.smallest", "reduced", asked);
      if (found && asked === this.settings) await this.open(found);
    }

    // --- the address ----------------------------------------------------------------------------

    /** null if the address holds no settings that the form can show. Their values are checked in Python. */
    fromAddress() {
      if (!this.links) return null;
      const fields = new URLSearchParams(window.location.hash.slice(1));
      try {
        const settings = JSON.parse(fields.get("play"));
        const lists = Array.isArray(settings.requests) && Array.isArray(settings.breaks ?? []);
        const objects = lists && settings.requests.every((one) => one !== null && typeof one === "object");
        return objects ? { settings, moment: Number(fields.get("moment")) || 0 } : null;
      } catch {
        return null;
      }
    }

    /** Somebody pasted another address, or went back to one. */
    async follow() {
      const shared = this.fromAddress();
      if (!shared) return;
      ({ settings: this.settings, moment: this.moment } = shared);
      if (!this.form) return this.button.disabled ? null : this.begin(); // what is starting reads them, too
      this.drawForm();
      await this.run(shared.moment);
    }

    /** Not at once: browsers refuse an address that changes too often. */
    writeAddress() {
      if (!this.links) return;
      clearTimeout(this.writing);
      this.writing = setTimeout(() => {
        const fields = new URLSearchParams({ play: JSON.stringify(this.settings), moment: this.moment });
        history.replaceState(null, "", `#${fields}`);
      }, 300);
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".playground")) new Playground(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
