/*
 * Under each Python cell of the tutorial: what it needs, and a button to edit and run it in the page.
 *
 * The page holds a script with what scripts/cells_in_pages.py found out about its cells.
 */
(() => {
  "use strict";

  const { h } = window.elements;

  function note(cell) {
    const lacks = cell.lacks || (cell.numpy && !window.oracle.numpy && "NumPy");
    return lacks ? `Needs ${lacks}: run it with .venv/bin/python.` : "";
  }

  function above(cell) {
    return cell.cells === 1 ? "the cell above that it needs" : `the ${cell.cells} cells above that it needs`;
  }

  function bar(cell, block, number) {
    const whole = [cell.before, cell.code].filter(Boolean).join("\n");
    const edit = h("button", { type: "button", class: "cell-edit", "aria-label": `Edit and run cell ${number}`, onclick: () => open(cell, block, row, number) }, "Edit and run");
    const copy = h("button", { type: "button", "aria-live": "polite", onclick: async () => {
      await navigator.clipboard.writeText(whole);
      copy.textContent = "Copied";
    } }, `Copy with ${above(cell)}`);
    const row = h("div", { class: "cell-bar" },
      !note(cell) && window.oracle.supported && edit,
      cell.cells > 0 && copy,
      note(cell) && h("span", {}, note(cell)));
    return row;
  }

  function open(cell, block, row, number) {
    const editor = window.editor.make({
      code: cell.code, label: `Python of cell ${number}, to be edited`, verb: "Run",
      program: (code) => ({ code, before: cell.before, numpy: cell.numpy }),
    });
    block.hidden = true;
    row.replaceChildren(editor);
    if (cell.cells > 0) editor.append(h("p", { class: "cell-note" }, `Runs behind ${above(cell)}.`));
    editor.querySelector("textarea").focus();
  }

  function start() {
    const script = document.querySelector("script.cells");
    if (!script) return;
    const blocks = [...document.querySelectorAll(".md-content .highlight")];
    for (const [i, cell] of JSON.parse(script.textContent).entries()) {
      const found = blocks.findIndex((one) => one.querySelector("code")?.textContent.trimEnd() === cell.code);
      if (found < 0) continue;
      const [block] = blocks.splice(found, 1);
      const row = bar(cell, block, i + 1);
      if (row.childElementCount > 0) block.after(row);
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
