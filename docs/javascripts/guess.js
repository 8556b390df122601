/*
 * "Let me guess first": hides each next step of a replay until a reader has said what becomes of each request
 * in it, and keeps a score. `new window.Guess(replay).element` goes above the replay.
 */
(() => {
  "use strict";

  const { h } = window.elements;
  const FATES = ["computes", "waits", "is preempted", "ends"];

  const queued = (moment) => ["waiting", "running", "swapped"].flatMap((queue) => moment?.queues[queue] ?? []);

  /** What is kept of a request: it grows when it computes. */
  const size = (moment, request) =>
    JSON.stringify(moment?.seqs.filter((seq) => seq.request === request).map((seq) => [seq.name, seq.words.length, seq.computed]));

  /** [request, fate] of all that are unfinished when a step begins. */
  function fatesOf(moments, step) {
    const own = moments.filter((one) => one.step === step);
    const before = moments.findLast((one) => one.step < step);
    const planned = own.find((one) => one.kind === "plan" || one.kind === "fell");
    const there = new Set([...queued(before), ...own.filter((one) => one.kind === "arrive").flatMap(queued)]);
    const computes = (request) =>
      own.some((one) => one.seqs.some((seq) => seq.request === request && seq.now.length > 0)) ||
      (before !== undefined && size(before, request) !== size(own.at(-1), request));
    return [...there].sort().map((request) => {
      if (own.at(-1).queues.finished.includes(request)) return [request, "ends"];
      const ran = before?.queues.running.includes(request);
      if (ran && planned && !planned.queues.running.includes(request)) return [request, "is preempted"];
      return [request, !planned?.queues.waiting.includes(request) && computes(request) ? "computes" : "waits"];
    });
  }

  class Guess {
    constructor(replay) {
      this.replay = replay;
      this.trace = null;
      this.known = 0; // up to this step all may be seen
      this.right = this.asked = 0;
      this.box = h("input", { type: "checkbox", onchange: () => this.begin() });
      this.form = h("form", { class: "guess-form", hidden: "", onsubmit: (event) => { event.preventDefault(); this.check(); } });
      this.says = h("p", { role: "status" });
      this.element = h("div", { class: "guess" },
        h("label", {}, this.box, h("span", {}, "Let me guess each step first")), this.form, this.says);
      replay.gate = (index) => this.allows(index);
    }

    begin() {
      this.known = this.replay.moment?.step ?? 0;
      this.form.hidden = true;
      this.says.textContent = this.box.checked ? "Go on with →: what comes is hidden until you have guessed." : "";
      if (this.box.checked) this.replay.root.focus({ preventScroll: true });
    }

    /** May the replay show this moment? If not, asks for the first step that is hidden. */
    allows(index) {
      const { trace } = this.replay;
      if (trace !== this.trace) { // another run: it is seen from here on
        this.trace = trace;
        this.known = trace.moments[index].step;
        this.form.hidden = true;
      }
      if (!this.box.checked || trace.moments[index].step <= this.known) return true;
      this.ask(trace.moments.find((one) => one.step > this.known).step);
      return false;
    }

    ask(step) {
      const { replay } = this;
      replay.stop();
      replay.show(this.trace.moments.findLastIndex((one) => one.step <= this.known));
      replay.scrub.value = replay.index;
      if (this.form.hidden) {
        this.fates = fatesOf(this.trace.moments, step);
        this.form.replaceChildren(h("p", {}, h("b", {}, `Step ${step}`), ": what becomes of each?"),
          ...this.fates.map(([request]) => this.row(request)), h("button", { type: "submit" }, "Check"));
        this.form.hidden = false;
        this.says.textContent = "";
      }
      this.form.querySelector("input:not(:checked)")?.focus();
    }

    row(request) {
      const choices = FATES.map((fate) =>
        h("label", {}, h("input", { type: "radio", name: `guess-${request}`, value: fate, required: "" }), h("span", {}, fate)));
      return h("fieldset", {}, h("legend", {}, request), h("div", {}, choices));
    }

    check() {
      const said = new FormData(this.form);
      const wrong = this.fates.filter(([request, fate]) => said.get(`guess-${request}`) !== fate);
      this.asked += this.fates.length;
      this.right += this.fates.length - wrong.length;
      const verdict = wrong.length === 0 ? "All right." : wrong.map(([request, fate]) => `${request} ${fate}.`).join(" ");
      this.says.textContent = `${verdict} Score: ${this.right} of ${this.asked}.`;
      this.form.hidden = true;
      const { moments } = this.trace;
      const first = moments.findIndex((one) => one.step > this.known);
      this.known = moments[first].step;
      this.replay.show(first);
      this.replay.root.focus({ preventScroll: true });
    }
  }

  window.Guess = Object.assign(Guess, { fatesOf });
})();
