/*
 * The elements of the code that lights up (code_lit.js), as `window.codeLitDrawing`.
 *
 * A view has what playground.lines.lit found, and the cursor: the number of an event.
 */
(() => {
  "use strict";

  const { h, classes } = window.elements;

  const functionOf = (view, call) => view.found.functions[view.found.calls[call].function];

  /** The calls that led here, outermost first. */
  function above(view, call) {
    const found = [];
    for (let one = call; one >= 0; one = view.found.calls[one].parent) found.unshift(one);
    return found;
  }

  /** Of a call, the numbers of its events by statement. */
  function runsOf(view, call) {
    const runs = new Map();
    view.found.events.forEach((event, number) => {
      if (event.call !== call) return;
      runs.set(event.statement, [...(runs.get(event.statement) ?? []), number]);
    });
    return runs;
  }

  function path(view, call) {
    const calls = above(view, call);
    return calls.flatMap((one, i) => {
      const { name } = functionOf(view, one);
      const last = i === calls.length - 1;
      const place = last ? null : view.found.calls[calls[i + 1]].at;
      return [i > 0 && " › ", last ? h("b", {}, name) : h("button", { type: "button", title: `The line of ${name} that calls`, onclick: () => view.go(place) }, name)];
    }).filter(Boolean);
  }

  const pairs = (values) => Object.entries(values).map(([name, value]) => h("span", { class: "lit-value" }, h("i", {}, name), ` = ${value}`));

  /** What an event read and set; what is set is behind an arrow. */
  function values({ reads, sets }) {
    const set = pairs(sets);
    return [...pairs(reads), set.length > 0 && h("span", { class: "lit-arrow", "aria-label": "then" }, "→"), ...set].filter(Boolean);
  }

  function dedented(lines) {
    const indent = Math.min(...lines.filter(([, text]) => text.trim()).map(([, text]) => text.search(/\S/)));
    return lines.map(([number, text]) => [number, text.slice(indent)]);
  }

  /** The function that runs, with what ran of it in this call. */
  function code(view, event) {
    const call = view.found.calls[event.call];
    const one = functionOf(view, event.call);
    const runs = runsOf(view, event.call);
    const given = pairs(call.given);
    const lines = dedented(one.lines).map(([number, text]) => {
      const statement = one.statements.findIndex(([first, last]) => first <= number && number <= last);
      return line(view, event, runs.get(statement) ?? [], { number, text, one, statement });
    });
    const title = h("p", { class: "lit-title" }, h("code", {}, `${one.file}:${one.lines[0][0]}`), given.length > 0 && " called with ", ...given);
    const ended = call.raised ? `raised ${call.raised}` : call.returned !== null && call.returned !== "None" && `returned ${call.returned}`;
    return [title, one.instead && planted(one.instead), h("ol", {}, lines), ended && h("p", { class: "lit-title" }, `This call ${ended}.`)].filter(Boolean);
  }

  function line(view, event, runs, { number, text, one, statement }) {
    const first = statement >= 0 && one.statements[statement][0] === number;
    const last = statement >= 0 && one.statements[statement][1] === number;
    const isNow = statement === event.statement;
    const shown = runs.findLast((place) => place <= view.cursor);
    const state = statement < 0 ? "" : runs.length === 0 ? "is-unrun" : shown === undefined ? "is-later" : "is-run";
    const nth = isNow && runs.length > 1 ? `run ${runs.indexOf(view.cursor) + 1} of ${runs.length}` : "";
    return h("li", { class: classes(state, isNow && "is-now"), "aria-current": isNow && first ? "true" : false, "data-line": number, "data-runs": first ? runs.length : false },
      h("span", { class: "lit-gutter", "aria-hidden": "true" }, isNow && first ? "▶" : "", ` ${number}`),
      h("span", { class: "lit-runs", title: "so many times in this call" }, first && runs.length > 0 && `${runs.length}×`),
      h("code", {}, text || " "),
      last && shown !== undefined && h("span", { class: "lit-values" }, nth && h("span", { class: "lit-nth" }, nth), ...values(view.found.events[shown])));
  }

  /** The oracle's lines, in whose place a fault runs. */
  function planted({ file, name, lines }) {
    return h("div", { class: "lit-planted" }, h("p", {}, "Planted in the place of ", h("code", {}, name), ` (${file}), of which no line ran:`),
      h("ol", {}, dedented(lines).map(([number, text]) =>
        h("li", { class: "is-unrun" }, h("span", { class: "lit-gutter", "aria-hidden": "true" }, number), h("span", {}), h("del", {}, h("code", {}, text || " "))))));
  }

  /** The calls of the moment, indented; neighbours of one function are one, with their number. */
  function outline(view) {
    const rows = [];
    view.found.calls.forEach((call, number) => {
      const depth = above(view, number).length - 1;
      const place = view.found.events.findIndex((event) => event.call === number);
      const before = rows.at(-1);
      if (before && before.name === functionOf(view, number).name && before.depth === depth) before.times += 1;
      else if (place >= 0) rows.push({ name: functionOf(view, number).name, depth, place, times: 1 });
    });
    return h("ul", {}, rows.map(({ name, depth, place, times }) =>
      h("li", { style: `--depth: ${depth}` }, h("button", { type: "button", onclick: () => view.go(place) }, name), times > 1 && ` ${times}×`)));
  }

  /** For who listens: the current line and its values. */
  function inWords(view, event) {
    const one = functionOf(view, event.call);
    const [first, last] = one.statements[event.statement];
    const text = one.lines.filter(([number]) => first <= number && number <= last).map(([, line]) => line.trim()).join(" ");
    const say = (known) => Object.entries(known).map(([name, value]) => `${name} is ${value}`);
    const set = say(event.sets);
    return [`Line ${first}: ${text}`, ...say(event.reads), ...(set.length ? ["then", ...set] : [])].join("; ");
  }

  window.codeLitDrawing = { path, code, outline, inWords };
})();
