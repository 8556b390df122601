/*
 * The elements of one moment of a replay, as `window.replayDrawing`: queues, sequences, blocks.
 *
 * A view has the trace, the moment, the one before it (what differs is marked) and the colours.
 */
(() => {
  "use strict";

  const { h, classes } = window.elements;
  const { ends, onDevice } = window.replayLines;

  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

  /** Who holds a block: [{seq, logical}], in the order of the sequences. */
  function holdersOf(moment, device, block) {
    return moment.seqs.flatMap((seq) =>
      seq.device === device && seq.table.includes(block)
        ? [{ seq, logical: seq.table.indexOf(block) }]
        : []
    );
  }

  /** "A1·2", or "A1 A2·0" where all have it as the same logical block. */
  function inWords(holders) {
    const alike = new Set(holders.map(({ logical }) => logical)).size === 1;
    if (alike) return `${holders.map(({ seq }) => seq.name).join(" ")}·${holders[0].logical}`;
    return holders.map(({ seq, logical }) => `${seq.name}·${logical}`).join(" ");
  }

  function queue(view, name) {
    const was = view.before.queues[name];
    const chips = view.moment.queues[name].map((request) =>
      h("span", { class: classes("replay-chip", view.colours.className(request), !was.includes(request) && "is-changed") }, request)
    );
    return h("div", { class: "replay-queue", "data-queue": name }, h("span", { class: "replay-queue-name" }, name), ...chips);
  }

  /** A slot of the device: the adapter that lies there, and the running requests that use it. */
  function slot(view, index) {
    const { adapter, users } = view.moment.slots[index];
    const was = view.before.slots[index];
    const chips = users.map((request) =>
      h("span", { class: classes("replay-chip", view.colours.className(request), !was.users.includes(request) && "is-changed") }, request)
    );
    return h("div", { class: classes("replay-queue", adapter !== was.adapter && "is-changed"), role: "listitem", "data-slot": index + 1 },
      h("span", { class: "replay-queue-name" }, `slot ${index + 1}: `, h("b", {}, adapter || "empty")), ...chips);
  }

  function sequence(view, seq) {
    const { name, request, status, words, prompt, computed, table } = seq;
    const before = view.before.seqs.find((one) => one.name === name);
    const attributes = {
      class: classes("replay-seq", view.colours.className(request), `is-${status}`, !before && "is-changed"),
      role: "listitem", "data-seq": name, "data-table": table.join(" "),
      style: `--paint: ${view.colours.paint(seq)}`,
    };
    const state = { finished: "finished", waiting: "waits" }[status] ?? `${computed} of ${words.length} in memory`;
    const notes = [seq.adapter, status === "swapped" ? "swapped out" : state].filter(Boolean);
    const title = h("h5", {}, name, notes.map((note) => h("span", { class: "replay-note" }, note)));
    if (status === "finished") {
      const said = h("p", {}, `${words.slice(0, prompt).join(" ")} `, h("b", {}, words.slice(prompt).join(" ")));
      return h("div", attributes, title, said);
    }
    const size = view.trace.block_size;
    const number = Math.max(table.length, Math.ceil(words.length / size));
    const blocks = Array.from({ length: number }, (_, logical) => logicalBlock(view, seq, before, logical));
    return h("div", attributes, title, h("div", { class: "replay-logical-row" }, blocks));
  }

  /** What stands at a position: a word of the sequence, or a guess that this step verifies. */
  function guessed(seq, position) {
    const first = (seq.now[1] ?? 0) - (seq.drafts?.length ?? 0);
    return seq.words[position] === undefined && position >= first ? seq.drafts?.[position - first] : undefined;
  }

  function logicalBlock(view, seq, before, logical) {
    const size = view.trace.block_size;
    const block = seq.table[logical];
    const changed = block !== undefined && (before?.table[logical] !== block || before?.device !== seq.device);
    const where = block === undefined ? "–" : seq.device === "cpu" ? `CPU ${block}` : `${block}`;
    const cells = Array.from({ length: size }, (_, offset) => {
      const position = logical * size + offset;
      const now = position >= (seq.now[0] ?? 0) && position < (seq.now[1] ?? 0);
      const state = seq.words[position] === undefined ? "is-empty" : position < seq.computed ? "is-computed" : "is-pending";
      const fresh = position in seq.words && position >= (before?.words.length ?? seq.prompt);
      const guess = guessed(seq, position);
      return h("span", { class: classes("replay-cell", guess === undefined ? state : "is-draft", now && "is-now", fresh && "is-fresh") },
        seq.words[position] ?? guess ?? "");
    });
    return h("div",
      {
        class: classes("replay-logical", changed && "is-changed", block === undefined && "is-nowhere"),
        "data-key": `${seq.name}/${logical}`, role: "group",
        "aria-label": `${seq.name}, logical block ${logical}: ${block === undefined ? "no block yet" : `in ${seq.device.toUpperCase()} block ${block}`}`,
      },
      h("div", { class: "replay-map" }, h("span", {}, `${logical}`), h("span", { "aria-hidden": "true" }, "→"), h("b", { class: "replay-entry" }, where)),
      h("div", { class: "replay-cells" }, cells));
  }

  /** A block of the pool of a device: `rank` says of which, where the trace has several. */
  function physicalBlock(view, device, block, rank) {
    const size = view.trace.block_size;
    const { refs, holds } = view.moment[device][block];
    const was = view.before[device][block];
    const holders = holdersOf(view.moment, device, block);
    const cached = device === "gpu" && view.moment.cached.includes(block);
    const wasCached = device === "gpu" && view.before.cached.includes(block);
    const awaited = view.moment.kind === "plan" && view.moment.moves.some((move) => ends(move)[1] === `${device}:${block}`);
    const valid = awaited ? 0 : Math.max(0, ...holders.map(({ seq, logical }) => seq.computed - logical * size));
    const cells = Array.from({ length: size }, (_, offset) => {
      const word = holds[offset] ?? "";
      const stale = cached && refs === 0 ? false : offset >= valid;
      const fresh = word !== (was.holds[offset] ?? "");
      const draft = view.moment.kind !== "plan" && holders.some(({ seq, logical }) => guessed(seq, logical * size + offset) === word);
      const state = word === "" ? "is-empty" : draft ? "is-draft" : stale ? "is-stale" : "is-computed";
      return h("span", { class: classes("replay-cell", state, fresh && "is-fresh") }, word);
    });
    const names = inWords(holders);
    const paint = holders.map(({ seq }) => view.colours.paint(seq));
    const style = paint.length ? `--one: ${paint[0]}; --two: ${paint[paint.length - 1]}` : false;
    return h("div",
      {
        class: classes("replay-block", refs === 0 && "is-free", refs > 1 && "is-shared", cached && "is-cached",
          (refs !== was.refs || !same(holds, was.holds) || cached !== wasCached) && "is-changed"),
        style, role: "listitem", "data-key": onDevice(`${device}:${block}`, rank), [`data-${device}`]: block, "data-rank": rank, "data-refs": refs,
        "aria-label": `${device.toUpperCase()} block ${block}${view.pools.length > 1 ? ` of GPU ${rank}` : ""}, ${refs ? `held by ${names}` : "free"}: ${holds.filter(Boolean).join(" ") || "never used"}`,
      },
      h("div", { class: "replay-map" },
        h("b", {}, `${block}`),
        h("span", { class: "replay-holders" }, names || (cached ? "free, kept" : "free")),
        cached && h("span", { class: "replay-cached", title: "known by its content" }, "◆"),
        h("span", { class: classes("replay-refs", refs > was.refs && "is-up", refs < was.refs && "is-down"), title: "reference count" }, `×${refs}`)),
      h("div", { class: "replay-cells" }, cells));
  }

  window.replayDrawing = { same, queue, slot, sequence, physicalBlock };
})();
