/*
 * Exercises that are done and checked in the page: <div class="exercise" data-exercise="{...}">, with
 * the file's text before and behind what the reader writes. The reader's text is kept in the browser.
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

  function fill(root) {
    const { name, before, code, behind } = JSON.parse(root.dataset.exercise);
    const key = `jax-engine exercise ${name}`;
    if (!window.oracle.supported) {
      root.append(h("p", {}, `${window.oracle.why} Run the command above instead.`));
      return;
    }
    root.append(window.editor.make({
      code: kept(key) ?? code, original: code, label: `Your answer to ${name}`, verb: "Check",
      program: (text) => ({ code: `${text}\n\n${behind}`, before }),
      changed: (text) => keep(key, text),
      passes: (printed) => printed.trimEnd().endsWith("Right."),
    }));
  }

  function start() {
    for (const root of document.querySelectorAll(".exercise")) fill(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
