/** The map of KV blocks, and the colours of requests. All text goes into text nodes. */

const HUES = [255, 50, 145, 320, 95, 200, 20, 285, 120, 350, 70, 170];
const NARROW = 480; // pixels: a phone's

export const make = (tag, className = "", text = "") => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
};

export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

/** Gives each request a hue, as different from those of the others as can be, and keeps it. */
export class Colours {
  #hues = new Map();
  #used = HUES.map((hue, order) => ({ hue, holders: 0, last: order - HUES.length }));
  #clock = 0;

  /** The requests that there are now: others give their hues back. */
  keep(names) {
    for (const [name, slot] of this.#hues) {
      if (names.has(name)) continue;
      slot.holders--;
      slot.last = ++this.#clock;
      this.#hues.delete(name);
    }
    for (const name of names) {
      if (this.#hues.has(name)) continue;
      const slot = this.#used.reduce((best, one) =>
        one.holders < best.holders || (one.holders === best.holders && one.last < best.last) ? one : best);
      slot.holders++;
      slot.last = ++this.#clock;
      this.#hues.set(name, slot);
    }
  }

  of(name) {
    return this.#hues.get(name).hue;
  }
}

const full = (hue) => `oklch(var(--cell-l) var(--cell-c) ${hue})`;

/** Hard stripes, one for each request. */
function stripes(hues) {
  return hues.map((hue, i) => `${full(hue)} ${(100 * i) / hues.length}% ${(100 * (i + 1)) / hues.length}%`).join(", ");
}

/**
 * The cells of one memory.
 *
 * A cell is drawn again only if it has changed. `tell` gets what a pointed-at cell is about, or null.
 */
export class BlockMap {
  #root;
  #tell;
  #cells = [];
  #drawn = [];
  #hues = []; // of the last request that used the cell: a cached prefix keeps it
  #now = new Map();
  #pinned = null;
  #memory = null;

  constructor(root, tell) {
    this.#root = root;
    this.#tell = tell;
    const index = (event) => this.#cells.indexOf(event.target);
    root.addEventListener("pointerover", (event) => this.#point(index(event)));
    root.addEventListener("pointerleave", () => this.#point(this.#pinned ?? -1));
    root.addEventListener("click", (event) => {
      const at = index(event);
      this.#pinned = at < 0 || at === this.#pinned ? null : at;
      this.#point(at);
    });
  }

  /** Shows a memory: `requests` have a `hue` and a `label`. */
  show(memory, requests, blockSize) {
    if (this.#memory && this.#memory.per_cell !== memory.per_cell) this.#hues = [];
    this.#memory = { ...memory, requests, blockSize };
    this.#now = new Map(memory.cells.map((cell) => [cell[0], cell]));
    const narrow = this.#root.clientWidth < NARROW;
    const least = narrow ? 128 : 256; // blocks that are shown in any case
    const blocks = Math.min(memory.num_blocks, Math.ceil(Math.max(memory.span, least) / 64) * 64);
    this.#resize(Math.ceil(blocks / memory.per_cell), narrow);
    this.#cells.forEach((element, index) => this.#draw(element, index));
    if (this.#pinned !== null) this.#point(this.#pinned);
    return this.#cells.length * memory.per_cell;
  }

  /** Dims all cells but those of one request; null: none. */
  light(request) {
    this.#root.classList.toggle("has-lit", request !== null);
    this.#cells.forEach((element, index) => {
      element.classList.toggle("is-lit", request !== null && (this.#now.get(index)?.[7].includes(request) ?? false));
    });
  }

  #resize(count, narrow) {
    while (this.#cells.length > count) this.#cells.pop().remove();
    while (this.#cells.length < count) {
      const element = make("span", "cell");
      element.dataset.cell = this.#cells.length;
      this.#cells.push(element);
      this.#root.append(element);
    }
    const columns = narrow ? (count <= 128 ? 16 : count <= 384 ? 24 : 32) : count <= 512 ? 32 : 64;
    this.#root.style.setProperty("--columns", columns);
    this.#root.classList.toggle("is-small", columns === 64 || (narrow && columns > 16));
  }

  #draw(element, index) {
    const cell = this.#now.get(index);
    const { per_cell: perCell, requests, blockSize } = this.#memory;
    const hues = cell ? cell[7].map((owner) => requests[owner].hue) : [];
    const key = cell ? JSON.stringify([cell.slice(1, 7), hues, perCell]) : "";
    if (this.#drawn[index] === key && element.dataset.key !== undefined) return;
    const before = element.classList.contains("is-used");
    this.#drawn[index] = element.dataset.key = key;
    if (hues.length) this.#hues[index] = hues[0];
    const [, used = 0, shared = 0, references = 0, tokens = 0, cached = 0, owners = 0] = cell ?? [];
    const toggle = (name, on) => element.classList.toggle(name, Boolean(on));
    toggle("is-used", used);
    toggle("is-new", used && !before);
    toggle("is-common", owners > 1);
    toggle("is-forked", perCell === 1 ? references > owners : shared);
    toggle("is-cached", cached && !used);
    toggle("is-nobody", this.#hues[index] === undefined);
    element.dataset.owners = owners;
    if (perCell === 1 && references > owners) element.dataset.count = `×${references}`;
    else delete element.dataset.count;
    element.style.setProperty("--hue", this.#hues[index] ?? 265);
    element.style.setProperty("--fill", `${Math.round((100 * tokens) / (perCell * blockSize))}%`);
    if (owners > 1) element.style.setProperty("--stripes", stripes(hues));
  }

  #point(index) {
    this.#cells.forEach((element, i) => element.classList.toggle("is-told", i === index));
    this.#tell(index < 0 || index >= this.#cells.length ? null : this.#words(index));
  }

  #words(index) {
    const { per_cell: perCell, requests, blockSize, num_blocks: total } = this.#memory;
    const first = index * perCell;
    const name = perCell === 1 ? `Block ${first}` : `Blocks ${first} to ${Math.min(first + perCell, total) - 1}`;
    const cell = this.#now.get(index);
    if (!cell) return `${name}: free.`;
    const [, used, shared, references, tokens, cached, owners, named] = cell;
    if (!used) return `${name}: free. ${perCell === 1 ? "It still holds" : `${cached} of them still hold`} a prefix that a new request could use.`;
    const who = named.map((owner) => requests[owner].label).join(", ");
    const others = owners > named.length ? ` and ${owners - named.length} more` : "";
    const filled = `${tokens} of ${used * blockSize} tokens`;
    if (perCell > 1) return `${name}: ${used} in use by ${who}${others}, ${filled}, ${shared} shared, ${cached} free but cached.`;
    if (references === 1) return `${name}: held by ${who}, ${filled}.`;
    const by = owners > 1 ? `${plural(owners, "request")}, ${who}${others}` : `${references} samples of ${who}`;
    return `${name}: shared by ${by}; ${filled}. Without sharing it would be ${references} blocks.`;
  }
}
