/*
 * Arrows between the boxes of the system's diagram, for each pair in its data-links. Where the boxes
 * are is the style sheet's choice, so they are drawn again when the diagram's size changes.
 */
(() => {
  "use strict";

  const { s } = window.elements;
  const GAP = 3; // pixels between an arrow and its box

  /** The middle of what two spans share; null if they share nothing. */
  function shared(a, b) {
    const start = Math.max(a[0], b[0]), end = Math.min(a[1], b[1]);
    return start < end ? (start + end) / 2 : null;
  }

  /** From a box to another, straight, between the edges that face each other. */
  function ends(from, to) {
    const x = shared([from.left, from.right], [to.left, to.right]);
    if (x !== null) {
      return from.bottom <= to.top
        ? [x, from.bottom + GAP, x, to.top - GAP] : [x, from.top - GAP, x, to.bottom + GAP];
    }
    const y = shared([from.top, from.bottom], [to.top, to.bottom]);
    const [start, end] = from.right <= to.left
      ? [from.right + GAP, to.left - GAP] : [from.left - GAP, to.right + GAP];
    return [start, y ?? (from.top + from.bottom) / 2, end, y ?? (to.top + to.bottom) / 2];
  }

  function draw(map, svg) {
    const origin = map.getBoundingClientRect();
    const box = (name) => map.querySelector(`[data-box="${name}"]`).getBoundingClientRect();
    for (const line of svg.querySelectorAll("line")) {
      const [x1, y1, x2, y2] = ends(box(line.dataset.from), box(line.dataset.to));
      const where = { x1: x1 - origin.left, y1: y1 - origin.top, x2: x2 - origin.left, y2: y2 - origin.top };
      for (const [name, value] of Object.entries(where)) line.setAttribute(name, value.toFixed(1));
    }
  }

  function add(map, number) {
    const svg = s("svg", { class: "journey-arrows", "aria-hidden": "true" });
    const id = `journey-head-${number}`;
    const head = s("marker", {
      id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7,
      markerUnits: "userSpaceOnUse", orient: "auto-start-reverse",
    });
    head.append(s("path", { d: "M0 0L8 4L0 8z" }));
    svg.append(head);
    for (const [from, to] of JSON.parse(map.dataset.links)) {
      svg.append(s("line", { "data-from": from, "data-to": to, "marker-start": `url(#${id})`, "marker-end": `url(#${id})` }));
    }
    map.append(svg);
    new ResizeObserver(() => draw(map, svg)).observe(map);
  }

  function start() {
    document.querySelectorAll(".journey-map").forEach(add);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
