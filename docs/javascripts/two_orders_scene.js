/*
 * A reader adds one row of numbers in two orders, step by step: <div class="two-orders" data-known="{...}">.
 * By row: always left to right. By shape: in as many parts as the rows of the step leave workers for.
 */
(() => {
  "use strict";

  const { h, classes } = window.elements;
  const { drawn, partsFor, additions, totalOf, lostInAll, bits, otherLogit, token } = window.twoOrders;
  const PAINTS = "abcd"; // of the workers
  const MOST_SEED = 9999;

  /** The shortest decimal that is this float32. */
  function shown(number) {
    for (let digits = 1; digits < 9; digits++) {
      const short = Number(number.toPrecision(digits));
      if (Math.fround(short) === number) return String(short);
    }
    return String(Number(number.toPrecision(9)));
  }

  const added = (number) => (number < 0 ? `− ${shown(-number)}` : `+ ${shown(number)}`);
  const brief = (number) => String(Number(number.toPrecision(3)));
  const counted = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

  /** The additions of each worker, then those that merge. */
  function groupsOf(made) {
    const workers = [...new Set(made.map((one) => one.worker))];
    return workers.map((worker) => made.filter((one) => one.worker === worker));
  }

  class Scene {
    constructor(root) {
      this.root = root;
      this.known = JSON.parse(root.dataset.known);
      this.numbers = this.known.first;
      this.step = 0;
      this.inputs = h("div", { class: "two-orders-row", role: "group", "aria-label": "The row of numbers" });
      this.byRow = h("section", { "aria-label": "By row" });
      this.byShape = h("section", { "aria-label": "By shape" });
      this.says = h("p", { class: "two-orders-says", role: "status" });
      root.tabIndex = -1; // so that its keys work once somebody has clicked into it
      root.append(this.drawing(), this.inputs, this.company(), this.controls(),
        h("div", { class: "two-orders-both" }, this.byRow, this.byShape), this.says);
      root.addEventListener("keydown", (event) => this.key(event));
      this.drawInputs();
      this.draw();
    }

    // --- what a reader chooses ------------------------------------------------------------------

    drawing() {
      const again = () => {
        this.seed.value = Math.max(1, Math.min(Math.trunc(this.seed.value), MOST_SEED));
        this.take(drawn(Number(this.seed.value), Number(this.count.value)));
      };
      this.count = h("select", { onchange: again }, this.known.counts.map((one) => h("option", { value: one }, one)));
      this.seed = h("input", { type: "number", min: 1, max: MOST_SEED, onchange: again });
      const another = () => {
        this.seed.value = (Number(this.seed.value) % MOST_SEED) + 1;
        again();
      };
      const first = () => {
        this.seed.value = "";
        this.count.value = this.known.first.length;
        this.take(this.known.first);
      };
      return h("div", { class: "two-orders-line" },
        h("label", {}, h("span", {}, "Numbers"), this.count), h("label", {}, h("span", {}, "Seed"), this.seed),
        h("button", { type: "button", onclick: another }, "Draw another row"),
        h("button", { type: "button", onclick: first }, "The first row"));
    }

    company() {
      this.shownRows = h("b", {});
      this.rows = h("input", { type: "range", min: 1, max: this.known.most_rows, value: 1, oninput: () => this.draw() });
      return h("label", { class: "two-orders-company" }, h("span", {}, "Rows in the step: ", this.shownRows), this.rows);
    }

    controls() {
      const button = (label, sign, action) => h("button", { type: "button", "aria-label": label, title: label, onclick: action }, sign);
      this.at = h("span", { class: "two-orders-at" });
      return h("div", { class: "two-orders-line two-orders-steps", role: "group", "aria-label": "Steps" },
        button("To the start", "⇤", () => this.go(-this.step)), button("One step back", "←", () => this.go(-1)),
        button("One step forward", "→", () => this.go(1)), button("To the end", "⇥", () => this.go(this.last)), this.at);
    }

    key(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
      event.preventDefault();
      this.go(by);
    }

    /** Another row: from its start, or at its end if the reader is at the end of the last one. */
    take(numbers) {
      const ended = this.step === this.last;
      this.numbers = numbers;
      this.step = ended ? this.last : 0;
      this.drawInputs();
      this.draw();
    }

    drawInputs() {
      this.inputs.replaceChildren(...this.numbers.map((number, i) =>
        h("input", { type: "number", step: "any", value: shown(number), "aria-label": `Number ${i + 1}`,
          onchange: ({ target }) => this.change(target, i) })));
    }

    change(input, i) {
      const good = Math.abs(input.valueAsNumber) <= this.known.limit; // NaN is not
      input.setCustomValidity(good ? "" : `Write a number between ${-this.known.limit} and ${this.known.limit}.`);
      input.setAttribute("aria-invalid", !good);
      if (!good) return input.reportValidity();
      const number = Math.fround(input.valueAsNumber);
      input.value = shown(number);
      this.numbers = this.numbers.map((one, at) => (at === i ? number : one));
      this.draw();
    }

    // --- the steps ------------------------------------------------------------------------------

    get last() {
      return this.numbers.length - 1; // left to right; in parts it is no more
    }

    go(by) {
      this.step = Math.max(0, Math.min(this.step + by, this.last));
      this.draw();
    }

    draw() {
      const rows = Number(this.rows.value);
      const parts = partsFor(this.known.workers, rows);
      const others = rows === 1 ? "this one, alone" : `this one and ${counted(rows - 1, "other")}`;
      this.shownRows.textContent = `${rows} (${others})`;
      this.rows.setAttribute("aria-valuetext", `${counted(rows, "row")}: ${others}`);
      this.at.textContent = `step ${this.step} of ${this.last}`;
      const size = this.numbers.length / parts;
      [...this.inputs.children].forEach((input, i) => { input.className = `is-${PAINTS[Math.floor(i / size)]}`; });
      this.other = otherLogit(this.numbers);
      const [inOrder, inParts] = [1, parts].map((one) => additions(this.numbers, one));
      const share = `${this.known.workers} workers, ${counted(rows, "row")}: ${parts === 1 ? "one for this row" : `${parts} parts of this row`}`;
      this.panel(this.byRow, "By row", "left to right, whoever is beside it", inOrder);
      this.panel(this.byShape, "By shape", share, inParts);
      this.says.textContent = this.step < this.last ? this.soFar(inOrder, inParts) : this.verdict(inOrder, inParts, parts);
    }

    panel(section, name, how, made) {
      const ended = this.step >= made.at(-1).step;
      const groups = groupsOf(made).map((group) => h("tbody", { class: group[0].worker === null ? "" : `is-${PAINTS[group[0].worker]}` },
        group.map((one, i) => this.line(one, i === 0 && group.length))));
      const head = ["worker", "adds", "total", "lost"].map((title) => h("th", { scope: "col" }, title));
      section.replaceChildren(
        h("table", { class: "two-orders-table" }, h("caption", {}, h("b", {}, name), `: ${how}`), h("thead", {}, h("tr", {}, head)), groups),
        h("p", { class: classes("two-orders-sum", !ended && "is-ahead") }, ...this.sum(made)));
    }

    /** A row of the table. The first of a worker has its number, and both that are added. */
    line({ step, worker, left, right, total, lost }, first) {
      return h("tr", { class: classes(step > this.step && "is-ahead", step === this.step && "is-now") },
        first && h("th", { scope: "rowgroup", rowspan: first }, worker === null ? "merge" : worker + 1),
        h("td", {}, first && `${shown(left)} `, h("span", {}, added(right))),
        h("td", {}, shown(total)), h("td", { class: lost !== 0 && "is-lost" }, brief(lost)));
    }

    sum(made) {
      const total = totalOf(made);
      const [mine, its] = this.known.tokens;
      const logits = this.other === null ? [] : [h("br", {}), `Logits: “${mine}” ${shown(total)}, “${its}” ${shown(this.other)}. Token: `,
        h("b", {}, token(this.known.tokens, total, this.other)), total === this.other && " (a tie: the first)"];
      return ["After ", counted(made.at(-1).step, "step"), ": ", h("b", {}, shown(total)), ", bits ", h("code", {}, bits(total)), ", ",
        h("span", {}, brief(lostInAll(made))), " lost in all.", ...logits].filter(Boolean);
    }

    // --- what is said ---------------------------------------------------------------------------

    soFar(...orders) {
      const [byRow, byShape] = orders.map((made) => {
        const now = made.filter((one) => one.step === this.step).map((one) => `${shown(one.left)} ${added(one.right)} = ${shown(one.total)}`);
        if (now.length > 0) return now.join(", ");
        return this.step === 0 ? "" : `it has ended with ${shown(totalOf(made))}`;
      });
      return this.step === 0 ? "Step with → through both orders." : `By row, ${byRow}. By shape, ${byShape}.`;
    }

    verdict(inOrder, inParts, parts) {
      if (this.other === null) return "The same bits in one, two and four parts: it happens. Draw another row.";
      if (parts === 1) return "Here both add in one order, so they have the same bits. With 1 or 2 rows in the step, the right one takes another order; the left one never does.";
      const totals = [inOrder, inParts].map(totalOf);
      const [byRow, byShape] = totals.map((total) => token(this.known.tokens, total, this.other));
      if (bits(totals[0]) === bits(totals[1])) return "Two orders, and the same bits, this time. Try another number of rows in the step.";
      if (byRow === byShape) return "The bits differ. The token is the same, this time.";
      return `The bits differ, and so does the token: “${byRow}” by row, “${byShape}” by shape. It is fed back, so what follows is another text.`;
    }
  }

  function start() {
    for (const root of document.querySelectorAll(".two-orders")) new Scene(root);
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
