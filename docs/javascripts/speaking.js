/*
 * A model that speaks in the page: <div class="speaking" data-known="{...}">, filled in by scripts/interactive.py.
 * What stands there at first was computed when the site was built; a reader's own prompt, by playground/speaking.py
 * in the page's Python (oracle.js). `Speech` is one request and what happens to its blocks, `Search` a beam search.
 */
(() => {
  "use strict";

  const { h, classes } = window.elements;
  const STEP_MS = 450;
  const EVENTS = [ // name, button
    ["", "Leave it alone"],
    ["poison", "Poison the free blocks"],
    ["move", "Move a block"],
    ["free-early", "Free a block too early, and poison it"],
  ];
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");
  const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(logprob > -0.01 ? 0 : 1)} %`;

  /** The pool behind a step, put together from the changes up to it: of each block [tables, ...words]. */
  function pool(steps, step) {
    const blocks = [];
    for (const { changed } of steps.slice(0, step + 1)) {
      for (const [block, now] of Object.entries(changed)) blocks[block] = now;
    }
    return blocks;
  }

  function drawPool(element, blocks, named) {
    element.replaceChildren(...blocks.map(([refs, ...words], block) => {
      const poisoned = words.includes("☠");
      const tables = named(block);
      const who = tables || (refs ? "in use" : "free");
      return h("div", {
        class: classes("speaking-block", tables && "is-named", !refs && "is-free", poisoned && "is-poisoned"), role: "listitem", "data-block": block,
        "aria-label": `block ${block}, ${who}${refs ? "" : ", in the free list"}${poisoned ? ", poisoned" : ""}: ${words.filter(Boolean).join(" ") || "never written"}`,
      }, h("b", {}, `${block}`), h("span", { class: "speaking-who" }, who), h("span", { class: "speaking-words" }, words.map((word) => h("i", {}, word || "·"))));
    }));
  }

  /** What both have: a form, a status, steps to go through, and the pool. */
  class Scene {
    constructor(root, known) {
      this.root = root;
      this.known = known;
      this.step = 0;
      this.timer = 0;
      this.status = h("p", { class: "speaking-status", role: "status" });
      this.play = h("button", { type: "button", onclick: () => (this.timer ? this.stop() : this.start()) }, "Play");
      this.slider = h("input", { type: "range", min: 0, "aria-label": "Step", oninput: () => { this.stop(); this.show(Number(this.slider.value)); } });
      this.at = h("span", { class: "speaking-at" });
      this.text = h("div", { class: "speaking-text" });
      this.pool = h("div", { class: "speaking-pool", role: "list", "aria-label": "Blocks of the pool" });
      this.prompt = h("input", { type: "text", value: known.first.prompt.join(" "), autocomplete: "off", spellcheck: "false" });
      root.append(this.form(), this.status,
        h("div", { class: "speaking-line" }, this.play, this.slider, this.at), this.text, this.pool);
      this.take(known.first, known.asked);
    }

    form() {
      const ask = window.oracle.supported && h("button", { type: "submit" }, this.verb);
      if (!window.oracle.supported) this.prompt.disabled = true;
      return h("form", { class: "speaking-form", onsubmit: (event) => { event.preventDefault(); this.ask(this.wanted()); } },
        h("label", { class: "speaking-prompt" }, h("span", {}, "Prompt"), this.prompt),
        h("div", { class: "speaking-line" }, this.choices(), ask),
        h("details", {}, h("summary", {}, `The ${this.known.words.length} words that it knows`), h("p", {}, this.known.words.join(" "))));
    }

    async ask(asked) {
      this.stop();
      const ready = this.known.ready.find((one) => JSON.stringify(one.asked) === JSON.stringify(asked));
      const number = (this.asked = (this.asked ?? 0) + 1);
      let found = ready?.found;
      try {
        if (!found) {
          await window.oracle.load((line) => { this.status.textContent = `${line} …`; });
          this.status.textContent = "computing …";
          found = await window.oracle.call("playground.speaking", this.call, asked);
        }
      } catch (error) {
        found = { error: error.message };
      }
      if (number !== this.asked) return;
      if (found.error) this.status.textContent = found.error;
      else this.take(found, asked);
    }

    take(found, asked) {
      this.found = found;
      this.root.dataset.ran = JSON.stringify(asked);
      this.slider.max = found.steps.length - 1;
      this.status.textContent = this.summary(asked);
      this.show(calm.matches || asked === this.known.asked ? found.steps.length - 1 : 0);
      if (this.step === 0) this.start();
    }

    start() {
      if (this.step === this.found.steps.length - 1) this.show(0);
      this.play.textContent = "Pause";
      this.timer = setInterval(() => {
        if (this.step === this.found.steps.length - 1) this.stop();
        else this.show(this.step + 1);
      }, STEP_MS);
    }

    stop() {
      clearInterval(this.timer);
      this.timer = 0;
      this.play.textContent = "Play";
    }

    show(step) {
      this.step = step;
      this.slider.value = step;
      this.at.textContent = `step ${step + 1} of ${this.found.steps.length}`;
      this.draw(this.found.steps[step], pool(this.found.steps, step));
    }
  }

  class Speech extends Scene {
    get verb() { return "Speak"; }
    get call() { return "speak"; }

    choices() {
      this.event = "";
      this.when = h("input", { type: "number", min: 2, max: 30, value: this.known.asked.at + 1 });
      this.buttons = EVENTS.map(([name, label]) => h("button", { type: "button", "data-event": name, "aria-pressed": "false", onclick: () => {
        this.event = name;
        this.ask(this.wanted());
      } }, label));
      return [h("span", { role: "group", "aria-label": "What happens on the way", class: "speaking-line" }, this.buttons),
        window.oracle.supported && h("label", {}, h("span", {}, "before word "), this.when)];
    }

    wanted() {
      return { prompt: this.prompt.value.trim(), words: this.known.asked.words, event: this.event, at: this.when.valueAsNumber - 1 };
    }

    summary(asked) {
      for (const button of this.buttons) button.setAttribute("aria-pressed", String(button.dataset.event === asked.event));
      const { says, differ, steps } = this.found;
      if (!asked.event) return says;
      const gap = Math.max(...steps.map((one) => one.apart));
      return differ === 0
        ? `${says} All logits of all ${steps.length} words are equal, bit for bit, to those of the request left alone.`
        : `${says} ${differ} of ${steps.length} words were drawn from other logits, by up to ${gap.toFixed(1)}.`;
    }

    draw(step, blocks) {
      const { prompt, steps, alone } = this.found;
      const said = steps.slice(0, this.step + 1);
      const other = said.some((one, i) => one.word !== alone[i]);
      const words = said.map((one, i) => h("span", { class: classes("is-said", one.word !== alone[i] && "is-other") }, one.word));
      const bars = step.best.map(([word, logprob]) => h("li", {}, h("span", {}, word), h("span", { class: "speaking-bar", style: `--share: ${Math.exp(logprob)}` }), percent(logprob)));
      const table = step.table.map((block, logical) => h("li", {}, `${logical} → ${block}`));
      this.text.replaceChildren(
        h("p", { class: "speaking-says" }, h("span", { class: "is-prompt" }, prompt.join(" ")), ...words.flatMap((word) => [" ", word])),
        h("p", { class: "speaking-alone" }, other ? `Left alone, it says: ${alone.slice(0, said.length).join(" ")}` : "As it is left alone."),
        h("div", { class: "speaking-both" },
          h("section", {}, h("h4", {}, "Its next word, by probability"), h("ol", { class: "speaking-best" }, bars)),
          h("section", {}, h("h4", {}, "Its block table"), h("ol", { class: "speaking-table" }, table))));
      drawPool(this.pool, blocks, (block) => (step.table.includes(block) ? `logical ${step.table.indexOf(block)}` : ""));
    }
  }

  class Search extends Scene {
    get verb() { return "Search"; }
    get call() { return "search"; }

    choices() {
      this.width = h("select", {}, [2, 3, 4].map((width) => h("option", { value: width }, `${width}`)));
      this.width.value = this.known.asked.beams;
      this.width.disabled = !window.oracle.supported;
      return h("label", {}, h("span", {}, "Beams "), this.width);
    }

    wanted() {
      return { prompt: this.prompt.value.trim(), words: this.known.asked.words, beams: Number(this.width.value) };
    }

    summary() {
      const copies = this.found.steps.reduce((sum, step) => sum + step.copies.length, 0);
      return `${this.found.steps.length} steps, ${copies} ${copies === 1 ? "block" : "blocks"} copied on write, ${this.found.ended.length} outputs.`;
    }

    draw(step, blocks) {
      const last = this.step === this.found.steps.length - 1;
      const shown = last ? this.found.ended : step.beams;
      const rows = shown.map(({ words, score, table }, i) => h("tr", {},
        h("td", {}, `${i + 1}`), h("td", {}, words.join(" ")), h("td", {}, score.toFixed(2)), h("td", {}, table?.join(" ") ?? "ended")));
      const head = ["beam", "says", last ? "log-probability a word" : "log-probability", "blocks"].map((name) => h("th", { scope: "col" }, name));
      this.text.replaceChildren(
        h("p", { class: "speaking-says" }, h("span", { class: "is-prompt" }, this.found.prompt.join(" "))),
        h("table", { class: "speaking-beams" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
      const tables = step.beams.map(({ table }) => table);
      drawPool(this.pool, blocks, (block) => {
        const beams = tables.flatMap((table, i) => (table.includes(block) ? [i + 1] : []));
        return beams.length ? `beam${beams.length > 1 ? "s" : ""} ${beams.join(", ")}` : "";
      });
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".speaking")) {
      const known = JSON.parse(root.querySelector("script").textContent);
      new (known.asked.beams ? Search : Speech)(root, known);
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
