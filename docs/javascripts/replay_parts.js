/*
 * The parts of a replay that stay, as `window.replayParts`: its controls, and the stage that moments are
 * drawn on. Both give the replay names for what it writes into.
 */
(() => {
  "use strict";

  const { h, s } = window.elements;

  const ICONS = {
    first: "M5 6h2v12H5zM12 6v12l-5-6zM19 6v12l-6-6z",
    event: "M4 6v12l6-6zM11 6v12l6-6zM18 6h2v12h-2z",
    back: "M15 6v12l-9-6zM17 6h2v12h-2z",
    play: "M8 5v14l11-7z",
    pause: "M7 5h4v14H7zM13 5h4v14h-4z",
    forward: "M9 6v12l9-6zM5 6h2v12H5z",
  };

  const KV_HEADS = 12; // of the model that is not there: each of up to four devices has as many

  function icon(name) {
    const svg = s("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" });
    svg.append(s("path", { d: ICONS[name] }));
    return svg;
  }

  function controls(replay) {
    const button = (name, label, action) =>
      h("button", { type: "button", class: `replay-${name}`, "aria-label": label, title: label, onclick: action }, icon(name));
    replay.chooser = h(
      "select",
      { "aria-label": "Scenario", onchange: () => replay.open(replay.chooser.value, 0) },
      [...replay.traces.values()].map((trace) => h("option", { value: trace.name }, trace.title))
    );
    replay.speed = h(
      "select",
      { "aria-label": "Speed", class: "replay-speed", onchange: () => replay.schedule() },
      ["0.5", "1", "2", "4"].map((x) => h("option", { value: x, selected: x === "1" ? "" : false }, `${x}×`))
    );
    replay.scrub = h("input", {
      type: "range", min: 0, value: 0, "aria-label": "Moment",
      oninput: () => { replay.stop(); replay.show(Number(replay.scrub.value)); },
    });
    replay.toggle = button("play", "Play", () => (replay.timer ? replay.stop() : replay.play()));
    replay.count = h("span", { class: "replay-count" });
    replay.badge = h("span", { class: "replay-badge" });
    replay.says = h("p", { class: "replay-says", "aria-live": "polite" });
    replay.about = h("p", { class: "replay-about" });
    return [
      h("div", { class: "replay-head" }, replay.chooser, replay.about),
      h("div", { class: "replay-panel" },
        h("div", { class: "replay-controls", role: "group", "aria-label": "Playback" },
          button("first", "To the first moment", () => replay.go(-Infinity)),
          button("back", "One moment back (←; with Shift a whole step)", () => replay.go(-1)),
          replay.toggle,
          button("forward", "One moment forward (→; with Shift a whole step)", () => replay.go(1)),
          button("event", "To the next event (e): a request comes, goes or moves", () => replay.skip()),
          replay.scrub, replay.count, replay.speed),
        h("div", { class: "replay-caption" }, replay.badge, replay.says)),
    ];
  }

  function stage(replay) {
    replay.queues = h("div", { class: "replay-queues" });
    replay.slots = h("div", { class: "replay-queues", role: "list", "aria-label": "Slots for adapters" });
    replay.seqs = h("div", { class: "replay-seqs", role: "list", "aria-label": "Sequences, their words and block tables" });
    replay.memory = h("div", { class: "replay-memory" });
    replay.stage = h("div", { class: "replay-stage" },
      replay.queues,
      replay.slots,
      h("div", { class: "replay-columns" },
        h("section", {}, h("h4", {}, "Logical blocks ", h("span", { class: "replay-note" }, "what each sequence sees, and its block table")), replay.seqs),
        replay.memory));
    return replay.stage;
  }

  /** "heads 0–5", of the KV heads that devices share. */
  function headsOf(rank, devices) {
    const share = KV_HEADS / devices;
    return `KV heads ${rank * share}–${(rank + 1) * share - 1}`;
  }

  /** The memory of one of the devices that a trace has: elements that moments are drawn into. */
  function pools(rank, devices) {
    const several = devices > 1;
    const gpu = h("div", { class: "replay-pool", role: "list", "aria-label": several ? `Blocks of GPU ${rank}` : "GPU blocks" });
    const cpu = h("div", { class: "replay-pool", role: "list", "aria-label": several ? `CPU blocks of GPU ${rank}` : "CPU blocks" });
    const note = h("span", { class: "replay-note" });
    const title = several ? [`GPU ${rank} `, h("span", { class: "replay-note" }, `${headsOf(rank, devices)}, `), note] : ["GPU blocks ", note];
    const swapped = several ? `swapped out of GPU ${rank}` : "swapped out";
    const cpuPart = h("section", {}, h("h4", {}, "CPU blocks ", h("span", { class: "replay-note" }, swapped)), cpu);
    return { rank, gpu, cpu, note, cpuPart, section: h("section", {}, h("h4", {}, title), gpu) };
  }

  /** The memory of all devices of a trace, in place of what was there. */
  function memory(replay, devices) {
    replay.pools = Array.from({ length: devices }, (_, rank) => pools(rank, devices));
    replay.memory.replaceChildren(...replay.pools.flatMap((one) => [one.section, one.cpuPart]));
  }

  window.replayParts = { icon, controls, stage, memory };
})();
