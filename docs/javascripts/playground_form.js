/*
 * The form of the playground, as `window.playgroundForm`: requests, the system, faults.
 *
 *   draw(playground)     fills playground.form from its settings
 *   reserve(settings)    what the watermark comes to, in blocks
 *
 * Settings are those of playground/settings.py. The title of a field has its name in the API.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const LETTERS = "ABCDEF"; // as many requests at most
  const FIELDS = [ // name, label, title, default, least, most
    ["block_size", "tokens in a block", "block_size", 4, 1, 8],
    ["gpu_blocks", "GPU blocks", "num_gpu_blocks_override", 9, 1, 40],
    ["budget", "tokens in a step", "max_num_batched_tokens", 32, 1, 64],
    ["cpu_blocks", "CPU blocks", "what swap_space comes to", 0, 0, 40],
    ["watermark_percent", "watermark, %", "of the GPU blocks, rounded down: so many stay free when a request is admitted", 1, 0, 50],
    ["devices", "GPUs", "tensor_parallel_size: each holds some KV heads of every block", 1, 1, 4],
    ["seed", "seed", "what requests say depends on it", 0, 0, 9999],
    ["guesses", "guesses a step (k)", "num_speculative_tokens; 0: none", 0, 0, 8],
    ["lookup_min", "shortest n-gram", "prompt_lookup_min", 1, 1, 5],
    ["lookup_max", "longest n-gram", "prompt_lookup_max", 3, 1, 5],
    ["slots", "slots for adapters", "max_loras; 0: requests with an adapter are refused", 0, 0, 4],
  ];
  const CHOICES = [
    ["scheduling", "scheduler", "scheduling", ["unified", "sosp", "sosp-mixed"]],
    ["preemption", "preemption", "preemption_mode", ["default", "recompute", "swap"]],
  ];
  const OWN = "your own";
  const ADAPTERS = ["", "pirate", "verse", "french"];
  const SWITCHES = [
    ["prefix_caching", "prefix caching", "enable_prefix_caching", false],
    ["chunked_prefill", "chunked prefill", "enable_chunked_prefill", true],
  ];
  const OF_REQUEST = [
    ["n", "samples (n)", "so many outputs of one prompt", 1, 1, 4],
    ["beams", "beams", "the width of a beam search; 0: none", 0, 0, 4],
    ["max_tokens", "max_tokens", "so many words are drawn at most; the last is a full stop", 6, 1, 24],
    ["step", "arrives in step", "the step before which it is added", 1, 1, 60],
  ];

  function number(label, title, value, least, most, change, note = false) {
    const input = h("input", { type: "number", min: least, max: most, value, onchange: () => change(Number(input.value)) });
    return h("label", { title }, h("span", {}, label), input, note);
  }

  function choice(label, title, known, value, change) {
    const select = h("select", { onchange: () => change(select.value) },
      known.map((one) => h("option", { value: one, selected: one === value ? "" : false }, one || "none")));
    return h("label", { title }, h("span", {}, label), select);
  }

  function toggle(label, title, value, change) {
    const input = h("input", { type: "checkbox", checked: value ? "" : false, onchange: () => change(input.checked) });
    return h("label", { class: "playground-switch", title }, input, h("span", {}, label));
  }

  /** A part that can be closed; it stays as the reader has left it. Narrow pages have it closed at first. */
  function part(playground, name, ...children) {
    const open = playground.parts[name] ?? playground.root.clientWidth >= 560;
    const details = h("details", {
      class: "playground-part", open: open ? "" : false, ontoggle: () => { playground.parts[name] = details.open; },
    }, h("summary", {}, name), h("div", { role: "group", "aria-label": name }, ...children));
    return details;
  }

  function draw(playground) {
    const { form, settings } = playground;
    playground.reserved = h("output", {});
    const numbers = FIELDS.map(([name, label, title, usual, least, most]) =>
      number(label, title, settings[name] ?? usual, least, most, (value) => playground.set({ [name]: value }, name === "slots"),
        name === "watermark_percent" && playground.reserved));
    const choices = CHOICES.map(([name, label, title, known]) =>
      choice(label, title, known, settings[name] ?? known[0], (value) => playground.set({ [name]: value })));
    const switches = SWITCHES.map(([name, label, title, usual]) =>
      toggle(label, title, settings[name] ?? usual, (value) => playground.set({ [name]: value })));
    form.replaceChildren(...[
      playground.scenes && scenes(playground),
      h("fieldset", { class: "playground-requests" }, h("legend", {}, "Requests"),
        settings.requests.map((one, i) => requestRow(playground, one, i)), requestButtons(playground)),
      part(playground, "System", numbers, choices, switches),
      part(playground, "Break it", faultSwitches(playground))].filter(Boolean));
    sayReserve(playground);
  }

  /** Scenes to begin with; "your own" once something was changed. */
  function scenes(playground) {
    playground.chooser = h("select", { onchange: () => playground.openScene(sceneOf(playground).settings) },
      h("option", { disabled: "" }, OWN), playground.scenes.map(({ title }) => h("option", {}, title)));
    return h("div", { class: "playground-scenes" }, h("label", {}, h("span", {}, "Scene"), playground.chooser));
  }

  const sceneOf = ({ scenes: known, chooser }) => known.find(({ title }) => title === chooser.value);

  function sayScene({ scenes: known, settings, chooser }) {
    const same = known?.find((one) => JSON.stringify(one.settings) === JSON.stringify(settings));
    if (chooser) chooser.value = same?.title ?? OWN;
  }

  function requestRow(playground, request, i) {
    const alone = playground.settings.requests.length === 1;
    const prompt = h("input", {
      type: "text", value: request.prompt, "aria-label": `Prompt of request ${LETTERS[i]}`, title: "prompt: its words are its tokens",
      onchange: () => playground.setRequest(i, { prompt: prompt.value }),
    });
    const says = h("input", {
      type: "text", value: request.says ?? "", placeholder: "by chance", onchange: () => playground.setRequest(i, { says: says.value }),
    });
    const said = h("label", { title: "the words that it draws, max_tokens of them at most; nothing: by chance, from the seed" }, h("span", {}, "says"), says);
    const fields = OF_REQUEST.map(([name, label, title, usual, least, most]) =>
      number(label, title, request[name] ?? usual, least, most, (value) => playground.setRequest(i, { [name]: value })));
    const adapters = playground.settings.slots > 0 || request.adapter;
    const adapter = adapters && choice("adapter", "the adapter that it asks for; it needs a slot", ADAPTERS, request.adapter ?? "",
      (value) => playground.setRequest(i, { adapter: value }));
    const drop = h("button", {
      type: "button", title: `Without ${LETTERS[i]}`, "aria-label": `Remove request ${LETTERS[i]}`,
      onclick: () => playground.set({ requests: playground.settings.requests.filter((_, k) => k !== i) }, true),
    }, "×");
    return h("div", { class: `playground-request is-${LETTERS[i].toLowerCase()}`, role: "group", "aria-label": `Request ${LETTERS[i]}` },
      h("b", {}, LETTERS[i]), prompt, !alone && drop, h("div", {}, said, fields, adapter || false));
  }

  function requestButtons(playground) {
    const full = playground.settings.requests.length >= LETTERS.length;
    const more = () => playground.set({ requests: [...playground.settings.requests, { prompt: "To be or" }] }, true);
    const add = h("button", { type: "button", disabled: full ? "" : false, onclick: more }, "One more");
    const random = h("button", { type: "button", onclick: () => playground.random() }, "Random requests");
    return h("div", { class: "playground-buttons" }, add, random);
  }

  function faultSwitches(playground) {
    const chosen = playground.settings.breaks ?? [];
    return Object.entries(playground.faults).map(([name, { says, example }]) => {
      const others = chosen.filter((one) => one !== name);
      const flip = (on) => playground.set({ breaks: on ? [...others, name] : others }, true);
      const open = h("button", {
        type: "button", class: "playground-example", "aria-label": `smallest example of ${name}`,
        title: "Open the smallest example that was found", onclick: () => playground.open(example),
      }, "example");
      return h("div", { class: "playground-fault" },
        toggle(name, says, chosen.includes(name), flip), open, chosen.includes(name) && h("span", {}, says));
    });
  }

  /** As reference/blocks.py rounds it. */
  function reserve({ watermark_percent: percent = 1, gpu_blocks: blocks = 9 }) {
    return Math.floor((percent / 100) * blocks);
  }

  function sayReserve(playground) {
    const { settings } = playground;
    sayScene(playground);
    playground.reserved.textContent = `= ${reserve(settings)} of ${settings.gpu_blocks ?? 9} blocks`;
  }

  window.playgroundForm = { draw, reserve, sayReserve };
})();
