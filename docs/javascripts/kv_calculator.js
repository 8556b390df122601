/*
 * How much a KV cache takes, and what fits: <div class="kv-calculator" data-known="{...}">. The same
 * arithmetic as scripts/tutorial/kv_sizes.py; `window.kvSizes` is what the test compares.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const GIB = 2 ** 30;

  /** Bytes, and sequences that fit. `known` has the constants of kv_sizes.py. */
  function sizes(known, model, gpu, { bits, context, limit, batch }) {
    const token = Math.floor((model.layers * 2 * model.kv_heads * model.head_dim * bits) / 8);
    const weights = Math.round(model.parameters * 1e9) * 2;
    const cache = Math.max(0, Math.floor(gpu * GIB * known.share) - weights);
    const blocks = Math.floor(cache / (token * known.block_size));
    const taken = Math.ceil(context / known.block_size);
    const whole = Math.max(limit, context);
    const sequences = Math.floor(blocks / taken);
    const reserved = Math.floor(cache / (token * whole));
    return {
      token, weights, cache,
      slots: blocks * known.block_size,
      sequences, reserved,
      batch: batch * taken * known.block_size * token,
      running: Math.min(batch, sequences),
      running_reserved: Math.min(batch, reserved),
      unused_in_blocks: taken * known.block_size - context,
      unused_in_reservation: whole - context,
    };
  }

  function inWords(bytes) {
    const units = [[GIB, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
    const [size, unit] = units.find(([one]) => bytes >= one) ?? [1, "bytes"];
    const value = bytes / size;
    return `${value >= 100 || size === 1 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
  }

  class Calculator {
    constructor(root) {
      this.known = JSON.parse(root.dataset.known);
      this.out = h("div", { class: "kv-out", role: "group", "aria-label": "What fits" });
      this.says = h("p", { class: "kv-says", role: "status" }); // in short: not all of `out` at each change
      const [low, high] = this.known.contexts.map(Math.log2);
      const [fewest, most] = this.known.batches.map(Math.log2);
      this.model = this.select("Model", Object.keys(this.known.models), "Llama-3-8B");
      this.gpu = this.select("GPU", Object.keys(this.known.gpus), "H100 80 GB");
      this.bits = this.select("KV cache in", Object.keys(this.known.bits), "bfloat16");
      this.context = this.slider("Tokens of a sequence now", low, high, 10);
      this.limit = this.slider("Tokens that it may have at most", low, high, 13);
      this.batch = this.slider("Sequences at once", fewest, most, 7, "sequences");
      const paper = h("button", { type: "button", onclick: () => this.asInThePaper() }, "The paper's machine");
      root.append(h("div", { class: "kv-in" }, this.model.label, this.gpu.label, this.bits.label,
        this.context.label, this.limit.label, this.batch.label, paper), this.says, this.out);
      this.draw();
    }

    asInThePaper() {
      [this.model.input.value, this.gpu.input.value, this.bits.input.value] = ["OPT-13B", "A100 40 GB", "bfloat16"];
      for (const name of ["context", "limit", "batch"]) this[name].input.value = Math.log2(this.known.paper[name]);
      this.draw();
    }

    select(name, known, chosen) {
      const input = h("select", { onchange: () => this.draw() },
        known.map((one) => h("option", { value: one, selected: one === chosen ? "" : false }, one)));
      return { input, label: h("label", {}, h("span", {}, name), input) };
    }

    slider(name, min, max, value, unit = "tokens") {
      const shown = h("b", {});
      const input = h("input", { type: "range", min, max, step: 0.25, value, oninput: () => this.draw() });
      return { input, shown, unit, label: h("label", {}, h("span", {}, `${name}: `, shown), input) };
    }

    draw() {
      const [context, limit, batch] = [this.context, this.limit, this.batch].map((one) => {
        const number = Math.round(2 ** Number(one.input.value));
        one.shown.textContent = number.toLocaleString("en");
        one.input.setAttribute("aria-valuetext", `${number} ${one.unit}`);
        return number;
      });
      const gpu = this.known.gpus[this.gpu.input.value];
      const found = sizes(this.known, this.known.models[this.model.input.value], gpu,
        { bits: this.known.bits[this.bits.input.value], context, limit, batch });
      const whole = Math.max(limit, context);
      this.says.textContent = `${found.sequences.toLocaleString("en")} sequences fit in blocks, ${found.reserved.toLocaleString("en")} with room for the most.`;
      const row = (name, value) => h("div", { class: "kv-row" }, h("span", {}, name), h("b", {}, value));
      this.out.replaceChildren(
        row("a token", inWords(found.token)), row("the weights", inWords(found.weights)),
        row("left for the cache", found.cache ? inWords(found.cache) : "nothing: the weights do not fit"),
        row("tokens in the cache", found.slots.toLocaleString("en")),
        row("sequences, in blocks", found.sequences.toLocaleString("en")),
        row("sequences, each with room for the most", found.reserved.toLocaleString("en")),
        row("KV caches, in blocks", inWords(found.batch)),
        this.sequence("in blocks", context, found.unused_in_blocks, whole),
        this.sequence("reserved", context, found.unused_in_reservation, whole),
        this.device("in blocks", gpu, found, [found.running, batch], context, found.unused_in_blocks),
        this.device("reserved", gpu, found, [found.running_reserved, batch], context, found.unused_in_reservation));
    }

    sequence(name, used, unused, whole) {
      const share = ((100 * unused) / (used + unused)).toFixed(1);
      return this.bar(`one sequence, ${name}: ${share} % unused`, { used, unused }, whole);
    }

    device(name, gpu, { token, weights }, [fit, batch], used, unused) {
      const bytes = Math.min(weights, gpu * GIB);
      const label = `the GPU, ${name}: ${fit.toLocaleString("en")} of ${batch.toLocaleString("en")} fit`;
      return this.bar(label, { weights: bytes, used: fit * used * token, unused: fit * unused * token }, gpu * GIB);
    }

    /** Amounts by name, as parts of a whole, to scale: what is used, and what nobody else can have. */
    bar(label, amounts, whole) {
      const parts = Object.entries(amounts).map(([kind, amount]) =>
        h("i", { class: `is-${kind}`, style: `width: ${(100 * amount) / whole}%` }));
      const said = Object.entries(amounts).map(([kind, amount]) => `${kind} ${((100 * amount) / whole).toFixed(1)} %`);
      return h("div", { class: "kv-bar" }, h("span", {}, label),
        h("div", { role: "img", "aria-label": said.join(", ") }, parts));
    }
  }

  window.kvSizes = sizes;

  function start() {
    for (const root of document.querySelectorAll(".kv-calculator")) new Calculator(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
