/*
 * Exercises that are done and checked in the page: <div class="exercise" data-exercise="{...}">, with
 * the file's text before and behind what the reader writes. The reader's text is kept in the browser.
 * <div class="exercise-variant"> becomes a field for the variant, which the address keeps: ?seed=7.
 */
(() => {
  "use strict";

  const { h } = window.elements;

  function kept(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  }

  function keep(key, text) {
    try {
      if (text === null) localStorage.removeItem(key);
      else localStorage.setItem(key, text);
    } catch { /* the browser keeps nothing; the text is still in the page */ }
  }

  const MOST = 9999; // the greatest number of a variant

  /** Which variant is checked; 0 if the address names none. */
  function seed() {
    const number = Number(new URLSearchParams(window.location.search).get("seed"));
    return Number.isInteger(number) && number >= 0 && number <= MOST ? number : 0;
  }

  function choose(input) {
    const good = input.value !== "" && input.checkValidity();
    input.setAttribute("aria-invalid", !good);
    if (!good) return;
    const address = new URL(window.location);
    if (Number(input.value) === 0) address.searchParams.delete("seed");
    else address.searchParams.set("seed", Number(input.value));
    window.history.replaceState(null, "", address);
  }

  function field(root) {
    if (!window.oracle.supported) return;
    const input = h("input", { type: "number", min: 0, max: MOST, step: 1, value: seed(), oninput: () => choose(input) });
    root.append(h("label", {}, h("span", {}, "Variant"), input), h("span", {}, `0 to ${MOST}. The check says which numbers a variant has.`));
  }

  function fill(root) {
    const { name, before, code, behind, numpy } = JSON.parse(root.dataset.exercise);
    const key = `jax-engine exercise ${name}`;
    if (!window.oracle.supported || (numpy && !window.oracle.numpy)) {
      const why = window.oracle.why || "This site was built without NumPy.";
      root.append(h("p", {}, `${why} Run the command above instead.`));
      return;
    }
    root.append(window.editor.make({
      code: kept(key) ?? code, original: code, label: `Your answer to ${name}`, verb: "Check",
      program: (text) => ({ code: `${text}\n\n${behind}`, before: `${before}\nimport sys\nsys.argv = ["", "--seed", "${seed()}"]`, numpy }),
      changed: (text) => keep(key, text),
      passes: (printed) => printed.trimEnd().endsWith("Right."),
    }));
  }

  function start() {
    for (const root of document.querySelectorAll(".exercise-variant")) field(root);
    for (const root of document.querySelectorAll(".exercise")) fill(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
