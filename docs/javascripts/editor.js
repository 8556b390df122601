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

  const MAX_ROWS = 40; // a longer text scrolls
  let made = 0; // editors, for the ids of their hints

  /** A button that is not to be pressed now keeps the focus, which a disabled one would lose. */
  const busy = (button) => button.getAttribute("aria-disabled") === "true";

  /**
   * An editor, its buttons, and what comes out.
   *
   * @param {string} original    what "As it was" brings back; `code` if it is left out
   * @param {string} code        what it begins with
   * @param {string} label       for screen readers
   * @param {string} verb        on the button that runs it
   * @param {function} program   the text of the editor -> {code, before, numpy}, as oracle.run takes them
   * @param {function} changed   called with the text when it changes
   * @param {function} passes    says of what was printed whether it is a success
   */
  function make({ code, original, label, verb, program, changed = () => {}, passes = () => true }) {
    const hint = `editor-hint-${(made += 1)}`;
    const area = h("textarea", {
      class: "editor-text", spellcheck: "false", autocapitalize: "off", autocomplete: "off", "aria-label": label, "aria-describedby": hint,
      onkeydown: (event) => indent(area, event), onblur: () => delete area.dataset.leaving,
      oninput: () => { fit(); changed(area.value); },
    });
    area.value = code;
    const fit = () => {
      area.rows = Math.min(Math.max(area.value.split("\n").length, 3), MAX_ROWS);
      area.style.height = ""; // by rows
      const row = parseFloat(getComputedStyle(area).lineHeight);
      const missing = area.scrollHeight - area.clientHeight; // more than none if lines wrap, as on a phone
      if (missing > 0 && area.rows < MAX_ROWS) {
        area.style.height = `${area.offsetHeight + Math.min(missing, row * (MAX_ROWS - area.rows))}px`;
      }
    };
    let width = 0; // a reader may have changed the height
    new ResizeObserver(() => {
      if (area.clientWidth !== width) {
        width = area.clientWidth;
        fit();
      }
    }).observe(area);
    const out = h("pre", { class: "editor-out", hidden: "" });
    const show = (text, failed = false) => {
      out.hidden = false;
      out.textContent = text;
      out.classList.toggle("is-failed", failed);
    };
    const run = h("button", { type: "button", class: "editor-run", "aria-disabled": "false", onclick: async () => {
      if (busy(run)) return;
      run.setAttribute("aria-disabled", "true");
      stop.hidden = false;
      try {
        await window.oracle.load((line) => show(`${line} …`));
        const { printed, error } = await window.oracle.run(program(area.value), window.editor.seconds);
        show([printed.trimEnd(), error].filter(Boolean).join("\n") || "It prints nothing.", Boolean(error) || !passes(printed));
      } catch (error) {
        show(error.message, true);
      }
      if (document.activeElement === stop) run.focus(); // it is about to go
      run.setAttribute("aria-disabled", "false");
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
    return h("div", { class: "editor", role: "group", "aria-label": label }, area,
      h("div", { class: "editor-buttons" }, run, stop, reset, h("span", { id: hint }, "Tab indents; Esc, then Tab leaves.")),
      h("div", { role: "status" }, out)); // it is in the page before it says something
  }

  window.editor = { make, seconds: 20 }; // after so many, code is stopped
})();
