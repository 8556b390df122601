/*
 * A small editor of Python that runs in the page: `window.editor.make(...)`, used by cells.js and
 * exercises.js. Tab indents; Escape and then Tab leaves it.
 */
(() => {
  "use strict";

  const { h } = window.elements;

  function indent(area, event) {
    if (event.key === "Escape") area.dataset.leaving = "yes";
    if (event.key !== "Tab" || event.shiftKey || area.dataset.leaving) return;
    event.preventDefault();
    area.setRangeText("    ", area.selectionStart, area.selectionEnd, "end");
  }

  /**
   * An editor, its buttons, and what comes out.
   *
   * @param {string} original    what "As it was" brings back; `code` if it is left out
   * @param {string} code        what it begins with
   * @param {string} label       for screen readers
   * @param {string} verb        on the button that runs it
   * @param {function} program   the text of the editor -> {code, before}, which are run
   * @param {function} changed   called with the text when it changes
   * @param {function} passes    says of what was printed whether it is a success
   */
  function make({ code, original, label, verb, program, changed = () => {}, passes = () => true }) {
    const area = h("textarea", {
      class: "editor-text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": label,
      onkeydown: (event) => indent(area, event), onblur: () => delete area.dataset.leaving,
      oninput: () => { fit(); changed(area.value); },
    });
    area.value = code;
    const fit = () => { area.rows = Math.min(Math.max(area.value.split("\n").length, 3), 40); };
    const out = h("pre", { class: "editor-out", role: "status", hidden: "" });
    const show = (text, failed = false) => {
      out.hidden = false;
      out.textContent = text;
      out.classList.toggle("is-failed", failed);
    };
    const run = h("button", { type: "button", class: "editor-run", onclick: async () => {
      run.disabled = true;
      stop.hidden = false;
      try {
        await window.oracle.load((line) => show(`${line} …`));
        const { code: text, before } = program(area.value);
        const { printed, error } = await window.oracle.run(text, before, window.editor.seconds);
        show([printed.trimEnd(), error].filter(Boolean).join("\n") || "It prints nothing.", Boolean(error) || !passes(printed));
      } catch (error) {
        show(error.message, true);
      }
      run.disabled = false;
      stop.hidden = true;
    } }, verb);
    const stop = h("button", { type: "button", class: "editor-stop", hidden: "", onclick: () => window.oracle.stop() }, "Stop");
    const reset = h("button", { type: "button", onclick: () => {
      area.value = original ?? code;
      fit();
      changed(null);
      out.hidden = true;
    } }, "As it was");
    fit();
    return h("div", { class: "editor" }, area, h("div", { class: "editor-buttons" }, run, stop, reset), out);
  }

  window.editor = { make, seconds: 20 }; // after so many, code is stopped
})();
