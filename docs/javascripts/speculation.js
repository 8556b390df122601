/*
 * Guess, then verify: one request, step by step. What it shows comes from playground/guessing.py: of some texts
 * when the page is built, of a reader's own by the oracle in the page (oracle.js).
 *
 * A page holds <div class="speculation"><script type="application/json">{name: {asked, found}}</script></div>.
 */
(() => {
  "use strict";

  const { h, classes } = window.elements;
  const OWN = "My own text";
  const BADGES = { prompt: "the prompt", plain: "a plain step", guess: "guess", verify: "verify", keep: "keep, and give back" };
  const NUMBERS = [ // name, label, title, default, least, most: as in playground/settings.py
    ["guesses", "guesses a step (k)", "num_speculative_tokens", 3, 0, 8],
    ["lookup_min", "shortest n", "prompt_lookup_min", 1, 1, 5],
    ["lookup_max", "longest n", "prompt_lookup_max", 3, 1, 5],
  ];

  /** Of each step its frames: {step, part}; a guess has three. */
  const framesOf = (found) => found.steps.flatMap((step, i) =>
    (step.kind === "guess" ? ["guess", "verify", "keep"] : [step.kind]).map((part, at) => ({ i, step, part, says: step.says[at] })));

  class Scene {
    constructor(root) {
      this.root = root;
      this.texts = JSON.parse(root.querySelector("script").textContent);
      this.asked = 0; // runs
      this.words = h("p", { class: "speculation-words" });
      this.badge = h("span", { class: "speculation-badge" });
      this.at = h("span", { class: "speculation-at" });
      this.says = h("p", { class: "speculation-says", "aria-live": "polite" });
      this.rows = h("div", { class: "speculation-rows" });
      this.blocks = h("div", { class: "speculation-blocks", role: "list", "aria-label": "Blocks of its table" });
      this.counts = h("p", { class: "speculation-counts" });
      this.status = h("p", { class: "speculation-status", role: "status" });
      root.append(this.choices(), this.form(), this.status, this.steps(), h("div", { class: "speculation-caption" }, this.badge, this.says),
        this.words, this.counts, h("div", { class: "speculation-both" }, this.rows, h("section", {}, h("h4", {}, "Its blocks"), this.blocks)));
      root.tabIndex = -1; // so that its keys work once somebody has clicked into it
      root.addEventListener("keydown", (event) => this.key(event));
      this.open(Object.keys(this.texts)[0]);
    }

    // --- what is served -------------------------------------------------------------------------

    choices() {
      const names = [...Object.keys(this.texts), ...(window.oracle.supported ? [OWN] : [])];
      this.chooser = h("select", { "aria-label": "Text", onchange: () => this.choose() }, names.map((name) => h("option", { value: name }, name)));
      const own = h("button", { type: "button", onclick: () => this.write() }, "Write a text of your own");
      return h("div", { class: "speculation-line" }, this.chooser, window.oracle.supported && own);
    }

    form() {
      this.inputs = {};
      const input = (name, attributes) => (this.inputs[name] = h("input", attributes));
      const text = (name, label, hint) =>
        h("label", { class: "speculation-text" }, h("span", {}, label), input(name, { type: "text", placeholder: hint, autocomplete: "off" }));
      const numbers = NUMBERS.map(([name, label, title, , min, max]) =>
        h("label", { title }, h("span", {}, label), input(name, { type: "number", min, max })));
      this.runs = h("button", { type: "submit" }, "Run it");
      this.fields = h("form", { class: "speculation-form", hidden: "", onsubmit: (event) => { event.preventDefault(); this.run(); } },
        text("prompt", "Prompt", "1 to 40 words"), text("says", "The model goes on with", "up to 24 words; nothing: by chance"),
        h("div", { class: "speculation-line" }, numbers, this.runs));
      return this.fields;
    }

    choose() {
      if (this.chooser.value === OWN) this.write();
      else this.open(this.chooser.value);
    }

    open(name) {
      this.name = this.chooser.value = name;
      this.fields.hidden = true;
      this.status.textContent = "";
      this.asked += 1;
      this.show(this.texts[name].found);
    }

    /** The form, with the text that is shown. */
    write() {
      if (this.fields.hidden) {
        const { asked } = this.texts[this.name];
        for (const [name, input] of Object.entries(this.inputs)) {
          input.value = asked[name] ?? NUMBERS.find(([number]) => number === name)[3];
        }
      }
      this.chooser.value = OWN;
      this.fields.hidden = false;
      this.inputs.prompt.focus();
    }

    async run() {
      const asked = { prompt: this.inputs.prompt.value, says: this.inputs.says.value };
      for (const [name] of NUMBERS) asked[name] = this.inputs[name].valueAsNumber;
      const number = (this.asked += 1);
      let found;
      try {
        await window.oracle.load((line) => { this.status.textContent = `${line} …`; });
        found = await window.oracle.call("playground.guessing", "run", asked);
      } catch (error) {
        found = { error: `Python cannot be had here: ${error.message}` };
      }
      if (number !== this.asked) return; // there is a newer text
      this.status.textContent = found.error ?? "";
      this.root.dataset.ran = JSON.stringify(asked);
      if (found.error) return;
      this.show(found);
      this.root.focus({ preventScroll: true }); // arrow keys step at once
    }

    // --- steps ----------------------------------------------------------------------------------

    steps() {
      const button = (label, text, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
      return h("div", { class: "speculation-line speculation-steps", role: "group", "aria-label": "Steps" },
        button("To the start", "⇤", () => this.go(-Infinity)), button("Back", "←", () => this.go(-1)),
        button("Forward", "→", () => this.go(1)), button("To the end", "⇥", () => this.go(Infinity)), this.at);
    }

    key(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
      event.preventDefault();
      this.go(by);
    }

    show(found) {
      this.found = found;
      this.frames = framesOf(found);
      this.index = 0;
      this.reserve();
      this.draw();
    }

    go(by) {
      this.index = Math.max(0, Math.min(this.index + by, this.frames.length - 1));
      this.draw();
    }

    /** Room for the longest caption, so that nothing below it jumps. */
    reserve() {
      this.says.style.minHeight = "";
      const heights = this.frames.map(({ says }) => { this.says.textContent = says; return this.says.offsetHeight; });
      this.says.style.minHeight = `${Math.max(...heights)}px`;
    }

    // --- drawing --------------------------------------------------------------------------------

    draw() {
      const frame = this.frames[this.index];
      const { i, part, says } = frame;
      this.badge.textContent = BADGES[part];
      this.badge.dataset.part = part;
      this.says.textContent = says;
      this.at.textContent = `step ${i + 1} of ${this.found.steps.length}, ${this.index + 1} / ${this.frames.length}`;
      this.words.replaceChildren(...this.sequence(frame));
      this.counts.textContent = this.count(frame);
      this.rows.replaceChildren(this.table(frame));
      this.blocks.replaceChildren(...frame.step.blocks.flatMap((block, logical) => this.block(frame, block, logical)));
    }

    /** Its words so far, and the guesses behind them. Where its end stood before is marked, and what was copied. */
    sequence({ step, part }) {
      const { words, prompt } = this.found;
      const kept = part === "guess" || part === "verify" ? 0 : step.kept;
      const [start, size] = part === "guess" || part === "verify" ? step.match : [-1, 0];
      const within = (position, from, length) => position >= from && position < from + length;
      const shown = words.slice(0, step.known + kept).map((word, position) => h("span", {
        class: classes(position < prompt ? "is-prompt" : "is-output", position >= step.known && "is-new",
          within(position, start, size) && "is-match", within(position, step.known - size, size) && "is-end",
          size > 0 && within(position, start + size, step.guesses.length) && "is-source"),
      }, word));
      const guessed = part === "guess" || part === "verify" ? step.guesses : [];
      return [...shown, ...guessed.map((word, at) => h("span", { class: classes("is-draft", at >= step.drafts && "is-left") }, word))]
        .flatMap((one) => [one, " "]);
    }

    count({ i, step, part }) {
      const ended = part === "guess" || part === "verify" ? i : i + 1;
      const drew = this.found.steps.slice(0, ended).filter(({ draws }) => draws.length > 0);
      const tokens = drew.reduce((sum, { kept }) => sum + kept, 0);
      const each = drew.length ? `, ${(tokens / drew.length).toFixed(2)} a step` : "";
      const so = `${tokens} ${tokens === 1 ? "token" : "tokens"} in ${drew.length} ${drew.length === 1 ? "step" : "steps"}${each}`;
      return `This step: ${step.fed} of ${this.found.budget} positions${step.drafts ? ` (1 + ${step.drafts})` : ""}. So far: ${so}.`;
    }

    /** A row for each word that is fed and draws one. */
    table({ step, part }) {
      const number = step.draws.length;
      const first = step.start + step.fed - number;
      const secret = part === "guess";
      const head = ["at", "fed", "drawn behind it", "guessed there", "so"].map((title) => h("th", { scope: "col" }, title));
      const body = Array.from({ length: number }, (_, at) => {
        const fed = at === 0 ? this.found.words[step.known - 1] : step.guesses[at - 1];
        const draft = at < step.drafts ? step.guesses[at] : "";
        return h("tr", { class: secret ? "" : at < step.kept ? "is-kept" : "is-dropped" }, h("td", {}, first + at),
          h("td", { class: at > 0 && "is-draft" }, fed), h("td", {}, secret ? "?" : step.draws[at]), h("td", {}, draft),
          h("td", {}, secret ? "" : this.verdict(step, at, draft)));
      });
      return h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, body));
    }

    verdict(step, at, draft) {
      if (at >= step.kept) return "dropped";
      if (draft === "") return "kept";
      return draft === step.draws[at] ? "kept, guess right" : "kept, guess wrong";
    }

    block(frame, { block, was, holds, had, stays, cached }, logical) {
      const { step, part } = frame;
      const time = { guess: 0, verify: 1 }[part] ?? 2;
      if (time === 0 && !had) return [];
      const size = this.found.block_size;
      const drafts = step.start + step.fed - step.drafts; // positions from here on hold guesses
      const valid = [step.start, drafts, Math.min(step.known + step.kept - 1, step.start + step.fed)][time];
      const cells = (time === 0 ? was : holds).map((word, offset) => {
        const position = logical * size + offset;
        const fed = time === 1 && position >= step.start && position < step.start + step.fed;
        const draft = fed && position >= drafts;
        return h("span", {
          class: classes("speculation-cell", word === null ? "is-empty" : draft ? "is-draft" : position < valid ? "is-computed" : "is-stale", fed && "is-now"),
        }, word ?? "");
      });
      const gone = time === 2 && !stays;
      const known = cached[time];
      const note = gone ? "given back" : time === 1 && !had ? "taken" : known && !cached[0] ? "cached" : "";
      return h("div", {
        class: classes("speculation-block", gone && "is-gone", (note !== "") && "is-changed"), role: "listitem", "data-block": block,
        "aria-label": `Logical block ${logical} in block ${block}${known ? ", in the prefix cache" : ""}${note ? `, ${note}` : ""}`,
      }, h("div", { class: "speculation-map" }, h("b", {}, `${logical} → ${block}`), h("span", {}, note), known && h("span", { title: "known to the prefix cache" }, "◆")),
      h("div", { class: "speculation-cells" }, cells));
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".speculation")) new Scene(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
