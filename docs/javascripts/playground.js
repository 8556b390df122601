/*
 * The playground: a reader's settings (playground_form.js), run by the oracle in the page (oracle.js), and
 * drawn by replay.js.
 *
 * A page holds <div class="playground" data-settings="{...}">; with `data-links` the address keeps the
 * settings and the moment. Settings are those of playground/settings.py.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const here = document.currentScript.src;
  const { draw, reserve, sayReserve } = window.playgroundForm;

  const ROOM = { block_size: 4, gpu_blocks: 9 }; // for random requests

  /** The number of a moment that `Playground.run` is asked to show. */
  function placeOf(moments, where) {
    const last = moments.length - 1;
    if (where === Infinity) {
      const fell = moments.findIndex((one) => one.kind === "fell");
      return fell < 0 ? last : fell;
    }
    if (typeof where === "number") return Math.min(where, last);
    const same = moments.findIndex((one) => one.step === where.step && one.kind === where.kind);
    const inStep = moments.findIndex((one) => one.step === where.step);
    const before = moments.findLastIndex((one) => one.step <= where.step);
    return [same, inStep, before].find((found) => found >= 0) ?? 0;
  }

  class Playground {
    constructor(root) {
      this.root = root;
      this.links = "links" in root.dataset;
      this.recorded = JSON.parse(root.querySelector("script[type='application/json']")?.textContent ?? "null");
      const shared = this.fromAddress();
      this.settings = shared?.settings ?? JSON.parse(root.dataset.settings);
      this.moment = shared?.moment ?? 0;
      this.line = shared?.line ?? null; // the one at which the code is to be opened
      this.parts = {}; // of the form: which are open
      this.waits = 0; // for Python
      this.status = h("p", { class: "playground-status", role: "status" });
      this.halt = h("button", { type: "button", class: "playground-stop", hidden: "", onclick: () => window.oracle.stop() }, "Stop");
      this.button = h("button", { type: "button", class: "playground-start", onclick: () => this.begin(true) },
        this.root.dataset.label ?? "Start Python");
      this.bar = h("div", { class: "playground-says" }, window.oracle.supported && this.button, this.status, this.halt);
      root.append(this.bar);
      if (this.recorded) this.showRecorded(shared);
      if (!window.oracle.supported) {
        this.status.textContent = `${window.oracle.why} The recorded scenes work without it.`;
        this.form?.remove(); // what it asks for cannot be run
        return;
      }
      if (shared && this.root.dataset.ran === undefined) this.begin();
      window.addEventListener("hashchange", () => this.follow());
    }

    /** The map at once: what the page's own scene did when the site was built, until Python is needed. */
    showRecorded(shared) {
      this.faults = this.recorded.faults;
      this.scenes = this.recorded.scenes;
      this.build();
      const own = JSON.parse(this.root.dataset.settings);
      if (shared && JSON.stringify(shared.settings) !== JSON.stringify(own)) return;
      this.root.dataset.ran = JSON.stringify(own);
      this.show(this.recorded.found, this.moment);
      this.status.textContent += " Recorded when this site was built. Your first change fetches Python and the oracle (12 MB, once).";
      if (shared) this.bring();
    }

    /** To where the map is read: a shared link is about a moment, not about the page. */
    bring() {
      this.root.scrollIntoView({ block: "start" });
    }

    async begin(pressed = false) {
      if (!(await this.python())) return;
      if (!this.form) this.build(); // a page that shows nothing before
      if (this.root.dataset.ran !== JSON.stringify(this.settings)) await this.run(this.moment);
      if (pressed) this.replay.root.focus({ preventScroll: true }); // the button is gone; arrow keys step at once
      else this.bring();
    }

    /** Is Python there? If not yet, it is fetched. */
    async python() {
      this.button.disabled = true;
      try {
        await window.oracle.load((line) => { this.status.textContent = `${line} …`; });
        this.faults ??= await window.oracle.call("playground.session", "faults", null);
      } catch (error) {
        this.button.disabled = false;
        this.status.textContent = `Python cannot be had here: ${error.message}. The recorded scenes work without it.`;
        return false;
      }
      this.button.remove();
      return true;
    }

    /** The room: the map first, then what is played with. */
    build() {
      this.form = h("form", { class: "playground-form", onsubmit: (event) => event.preventDefault() });
      this.fell = h("div", { class: "playground-fell", role: "alert" });
      const replay = h("div", { class: "replay replay--made", "data-keys": this.links ? "" : false });
      this.replay = new window.Replay(replay);
      this.code = new window.CodeLit((index) => this.lines(index), () => this.writeAddress());
      this.replay.onMoment = (index) => { this.moment = index; this.code.moment(index); this.writeAddress(); };
      replay.hidden = true; // until there is something to show
      const tools = h("div", { class: "playground-tools" }, this.code.toggle, new window.Guess(this.replay).element);
      this.stage = h("div", { class: "playground-stage" }, this.fell, tools, replay);
      const side = h("div", { class: "playground-side" }, this.bar, this.form); // what Python says is beside what was changed
      this.root.append(h("div", { class: "playground-room" }, this.stage, this.code.element, side));
      draw(this);
    }

    // --- settings -------------------------------------------------------------------------------

    set(change, redraw = false) {
      this.settings = { ...this.settings, ...change };
      if (redraw) draw(this);
      else sayReserve(this);
      const { step, kind } = this.replay.moment ?? { step: 0 };
      return this.run({ step, kind });
    }

    setRequest(i, change) {
      const requests = this.settings.requests.map((one, k) => (k === i ? { ...one, ...change } : one));
      return this.set({ requests });
    }

    async random() {
      const seed = Math.floor(Math.random() * 10000);
      const requests = await this.result("playground.session", "draw", { seed, count: 3 });
      if (!requests) return;
      await this.set({ requests, seed }, true);
      if (this.replay.root.hidden) await this.set(ROOM, true); // an example's few blocks are too few for all of them
    }

    async openScene(settings) {
      this.settings = settings;
      draw(this);
      await this.run(0);
    }

    async open(settings) {
      this.settings = settings;
      draw(this);
      await this.run(Infinity);
      this.fell.scrollIntoView({ block: "nearest" });
    }

    // --- running --------------------------------------------------------------------------------

    /** Of a Python function; null, and a line in the page, if there is none. */
    async result(module, name, argument) {
      try {
        return await this.call(module, name, argument);
      } catch (error) {
        this.status.textContent = error.message;
        return null;
      }
    }

    /** As window.oracle.call. What takes long can be stopped. */
    async call(...what) {
      this.waits += 1;
      const timer = setTimeout(() => { this.halt.hidden = false; }, 500);
      try {
        return await window.oracle.call(...what);
      } finally {
        clearTimeout(timer);
        this.waits -= 1;
        if (this.waits === 0) this.halt.hidden = true;
      }
    }

    /** Runs the settings, and shows a moment: its number, Infinity (the one that falls), or {step, kind}. */
    async run(where) {
      const asked = (this.asked = JSON.stringify(this.settings));
      if (!(await this.python())) return;
      let found;
      try {
        found = await this.call("playground.session", "run", this.settings);
      } catch (error) {
        found = { error: error.message };
      }
      if (asked !== this.asked) return; // there are newer settings
      this.root.dataset.ran = asked;
      if (found.error) this.status.textContent = found.error;
      else this.show(found, where);
    }

    show(found, where) {
      const { moments } = found.trace;
      const refused = Object.values(found.refused);
      this.status.textContent = [`${moments.at(-1)?.step ?? 0} steps, ${moments.length} moments.`,
        ...refused.map((one) => `Refused: ${one}.`), moments.length > 0 && this.unseen(found.fell)].filter(Boolean).join(" ");
      this.drawFell(found.fell, moments.findIndex((one) => one.kind === "fell"));
      this.replay.root.hidden = moments.length === 0;
      if (moments.length) this.replay.load(found.trace, placeOf(moments, where));
      if (this.line !== null) this.code.turn(true, this.line);
      this.line = null;
      this.writeAddress();
    }

    /** Of faults that were planted, and did nothing. */
    unseen(fell) {
      const planted = this.settings.breaks ?? [];
      if (fell || planted.length === 0) return "";
      const none = planted.includes("no watermark") && reserve(this.settings) === 0;
      const still = this.guessing(planted) && !this.settings.guesses;
      const why = none ? " (The watermark comes to 0 blocks here.)" : still ? " (Nothing is guessed: k is 0.)" : "";
      return `Nothing fell: “${planted.join("” and “")}” did not show with these requests.${why} The button “example” beside it opens the smallest found with which it does.`;
    }

    /** Is a fault of guesses among these? Their examples guess. */
    guessing(planted) {
      return planted.some((name) => this.faults[name].example.guesses);
    }

    drawFell(fell, index) {
      this.fell.replaceChildren();
      if (!fell) return;
      const planted = this.settings.breaks ?? [];
      const says = [`. ${fell.title} Here, ${fell.says}.`];
      if (fell.invariant === "I18") says.push(fell.preempted ? `In step ${fell.preempted} it is preempted: go on and see.` : "This time it is not preempted for it.");
      if (fell.then) says.push(`In step ${fell.then.step} ${fell.then.invariant} falls, too: ${fell.then.says}.`);
      if (planted.length === 1) says.push(`What a user sees: ${this.faults[planted[0]].user}`);
      const name = h("a", { href: new URL(`../correctness/#${fell.section}`, here) }, fell.invariant);
      const show = h("button", { type: "button", onclick: () => this.replay.show(index) }, "Show the moment");
      const less = h("button", { type: "button", onclick: () => this.smaller() }, "Make it smaller");
      this.fell.append(h("p", {}, h("b", {}, name, ` falls in step ${fell.step}`), says.join(" ")),
        h("div", { class: "playground-buttons" }, show, planted.length > 0 && less));
    }

    async smaller() {
      this.status.textContent = "leaving out what is not needed …";
      const asked = this.settings;
      const found = await this.result("playground.smallest", "reduced", asked);
      if (found && asked === this.settings) await this.open(found);
    }

    /** What ran in a moment, as playground/lines.py has it; null, and a line in the page, if that cannot be had. */
    async lines(index) {
      const { settings, status: { textContent: said } } = this;
      if (!(await this.python())) return null;
      const found = await this.result("playground.lines", "lit", { settings, index });
      if (found) this.status.textContent = said;
      return found;
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
        const line = fields.has("line") ? Number(fields.get("line")) || 0 : null;
        return objects ? { settings, moment: Number(fields.get("moment")) || 0, line } : null;
      } catch {
        return null;
      }
    }

    /** Somebody pasted another address, or went back to one. */
    async follow() {
      const shared = this.fromAddress();
      if (!shared) return;
      ({ settings: this.settings, moment: this.moment, line: this.line } = shared);
      if (!this.form) return this.button.disabled ? null : this.begin(); // what is starting reads them, too
      draw(this);
      await this.run(shared.moment);
    }

    /** Not at once: browsers refuse an address that changes too often. */
    writeAddress() {
      if (!this.links) return;
      clearTimeout(this.writing);
      this.writing = setTimeout(() => {
        const fields = new URLSearchParams({ play: JSON.stringify(this.settings), moment: this.moment });
        if (this.code?.on) fields.set("line", this.code.cursor);
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
