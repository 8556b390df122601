/*
 * Run by test_replay.py in a page with one replay: uses it as a reader would, compares what it shows
 * with the traces, and leaves what it found in the page, in an element "report", as JSON.
 */
(() => {
  "use strict";
  const report = { errors: [], scenarios: {}, width: 0 };
  const fail = (text) => report.errors.push(text);
  window.addEventListener("error", (event) => fail(`error: ${event.message}`));
  window.addEventListener("unhandledrejection", (event) => fail(`rejected: ${event.reason}`));
  console.error = (...args) => fail(`console: ${args.join(" ")}`);

  // Captions are to be read, by others: here time runs fast.
  const realTimeout = window.setTimeout.bind(window);
  window.setTimeout = (action, milliseconds) => realTimeout(action, milliseconds / 200);
  const sleep = (milliseconds) => new Promise((done) => realTimeout(done, milliseconds));

  let root;
  const one = (selector) => root.querySelector(selector);
  const click = (name) => one(`.replay-${name}`).click();
  const text = (element) => element.textContent.trim();

  function equal(shown, wanted, what) {
    const [a, b] = [shown, wanted].map((value) => JSON.stringify(value));
    if (a !== b) fail(`${what}: shown ${a}, in the trace ${b}`);
  }

  /** Does the page show this moment? */
  function compare(trace, index, how) {
    const moment = trace.moments[index];
    const what = `${trace.name} ${index + 1} (${how})`;
    equal(text(one(".replay-count")), `${index + 1} / ${trace.moments.length}`, `${what} count`);
    equal(text(one(".replay-says")), moment.says, `${what} caption`);
    for (const [queue, names] of Object.entries(moment.queues)) {
      const chips = [...root.querySelectorAll(`[data-queue="${queue}"] .replay-chip`)].map(text);
      equal(chips, names, `${what} ${queue}`);
    }
    const slots = [...root.querySelectorAll("[data-slot]")].map((slot) => ({
      adapter: text(slot.querySelector("b")), users: [...slot.querySelectorAll(".replay-chip")].map(text),
    }));
    equal(slots, (moment.slots ?? []).map(({ adapter, users }) => ({ adapter: adapter || "empty", users })), `${what} slots`);
    for (const device of ["gpu", "cpu"]) {
      const blocks = [...root.querySelectorAll(`[data-${device}]`)];
      const refs = moment[device].map((block) => `×${block.refs}`);
      equal(blocks.map((block) => text(block.querySelector(".replay-refs"))), refs, `${what} ${device} counts`);
      const words = blocks.map((block) => [...block.querySelectorAll(".replay-cell")].map(text).join(" ").trim());
      equal(words, moment[device].map((block) => block.holds.map((word) => word ?? "").join(" ").trim()), `${what} ${device} words`);
    }
    equal([...root.querySelectorAll("[data-seq]")].map((seq) => seq.dataset.seq), moment.seqs.map((seq) => seq.name), `${what} sequences`);
    for (const seq of moment.seqs) {
      const shown = [...root.querySelectorAll(`[data-seq="${seq.name}"] .replay-entry`)].map(text).filter((entry) => entry !== "–");
      const table = seq.table.map((block) => (seq.device === "cpu" ? `CPU ${block}` : `${block}`));
      equal(shown, table, `${what} table of ${seq.name}`);
      const note = one(`[data-seq="${seq.name}"] .replay-note`).textContent;
      if ((note === seq.adapter) !== Boolean(seq.adapter)) fail(`${what} adapter of ${seq.name}: ${note}`);
    }
    coloured(trace, moment, what);
    fits(what);
  }

  /** A sequence keeps its colour, and no other that runs beside it has the same. */
  const paints = new Map();
  function coloured(trace, moment, what) {
    const running = moment.seqs.filter((seq) => seq.status !== "finished");
    const seen = running.map((seq) => {
      const paint = one(`[data-seq="${seq.name}"]`).style.getPropertyValue("--paint");
      const known = paints.get(`${trace.name} ${seq.name}`) ?? paint;
      paints.set(`${trace.name} ${seq.name}`, known);
      equal(paint, known, `${what} colour of ${seq.name}`);
      return paint;
    });
    equal(new Set(seen).size, running.length, `${what} different colours`);
  }

  /** Nothing sticks out to the side. */
  function fits(what) {
    const page = document.documentElement;
    if (page.scrollWidth > page.clientWidth) fail(`${what}: ${page.scrollWidth} wide in ${page.clientWidth}`);
    const { right } = root.getBoundingClientRect();
    for (const element of root.querySelectorAll("*")) {
      if (element.getBoundingClientRect().right > right + 1) fail(`${what}: ${element.className} sticks out`);
    }
  }

  async function scenario(trace) {
    const last = trace.moments.length - 1;
    const chooser = one("select");
    chooser.value = trace.name;
    chooser.dispatchEvent(new Event("change"));
    for (let index = 0; index <= last; index++) {
      compare(trace, index, "forward");
      click("forward");
    }
    compare(trace, last, "forward at the end");
    for (let index = last; index >= 0; index--) {
      compare(trace, index, "back");
      click("back");
    }
    for (const index of [last, Math.floor(last / 2)]) {
      const scrub = one("input[type=range]");
      scrub.value = index;
      scrub.dispatchEvent(new Event("input"));
      compare(trace, index, "scrub");
    }
    click("first");
    one(".replay-speed").value = "4";
    click("play");
    equal(one(".replay-play").title, "Pause", `${trace.name}: while it plays`);
    for (let wait = 0; wait < 500 && one(".replay-play").title === "Pause"; wait++) await sleep(20);
    equal(one(".replay-play").title, "Play", `${trace.name}: at the end`);
    compare(trace, last, "played");
    report.scenarios[trace.name] = trace.moments.length;
  }

  async function keys(trace) {
    const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    location.hash = `#${trace.name}/3`;
    await sleep(50);
    compare(trace, 2, "address");
    press("ArrowRight");
    compare(trace, 3, "arrow right");
    press("ArrowLeft");
    press("ArrowLeft");
    compare(trace, 1, "arrow left");
    await sleep(50);
    equal(location.hash, `#${trace.name}/2`, "the address follows");
    press(" ");
    equal(one(".replay-play").title, "Pause", "space");
    press(" ");
    equal(one(".replay-play").title, "Play", "space again");
  }

  /** A tap on a shared block shows all who hold it; another one takes that back. */
  async function taps() {
    location.hash = "#copy-on-write/4";
    await sleep(50);
    const lit = () => [...root.querySelectorAll(".is-lit")].map((element) => element.dataset.key).sort();
    one('[data-gpu="7"]').click();
    equal(lit(), ["A1/0", "A2/0", "gpu:7"], "tap on block 7");
    equal(root.querySelectorAll(".replay-line.is-link").length, 2, "lines of block 7");
    one('[data-gpu="7"]').click();
    equal(lit(), [], "second tap");
    one('[data-key="A2/1"]').click();
    equal(lit(), ["A2/1", "gpu:1"], "tap on a logical block");
    click("forward");
    equal(lit(), ["A2/1", "gpu:1"], "a pinned block stays so");
  }

  window.addEventListener("load", async () => {
    try {
      root = document.querySelector(".replay");
      report.width = window.innerWidth;
      report.calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
      const traces = [...root.querySelectorAll("[data-trace]")].map((script) => JSON.parse(script.textContent));
      compare(traces[0], 0, "at first");
      await keys(traces[0]);
      await taps(); // early: browsers stop to heed an address that changes as often as below
      for (const trace of traces) await scenario(trace);
      const unnamed = [...root.querySelectorAll("button, select, input")].filter((control) => !control.getAttribute("aria-label"));
      equal(unnamed.length, 0, "controls without a name");
    } catch (error) {
      fail(`stopped: ${error.stack}`);
    }
    const outer = window.parent.document;
    const result = outer.createElement("pre");
    result.id = "report";
    result.textContent = JSON.stringify(report);
    outer.body.append(result);
  });
})();
