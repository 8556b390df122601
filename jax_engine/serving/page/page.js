/** Asks for the state a few times a second, and shows it. */

import { Chat } from "./chat.js";
import { BlockMap, Colours, make, plural } from "./map.js";

const POLL_MS = 250;
const AGAIN_MS = 1000; // after a failure
const HISTORY_S = 60;
const KEY = "jax-engine-key";
// Which of several engines is shown: /?engine=1 is the second one.
const ENGINE = Number(new URLSearchParams(location.search).get("engine") ?? 0) || 0;
const byId = (id) => document.getElementById(id);

/** `fetch` with the key, which is asked for when the server wants another one. */
async function call(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) await askForKey(key);
  return response;
}

let asking = null;

/** Opens the dialog once, whoever asks; ends when there is a key other than the wrong one. */
function askForKey(wrong) {
  if (sessionStorage.getItem(KEY) !== wrong) return Promise.resolve();
  byId("key-wrong").hidden = wrong === null;
  asking ??= new Promise((done) => {
    byId("key-dialog").showModal();
    byId("key-form").addEventListener("submit", (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, byId("key").value.trim());
      byId("key-dialog").close();
      asking = null;
      done();
    }, { once: true });
  });
  return asking;
}

function say(mood, text) {
  byId("status").dataset.mood = mood;
  byId("status").textContent = text;
}

function tell(text) {
  byId("told").classList.toggle("is-block", text !== null);
  byId("told").textContent = text ?? "A cell is a block of the cache. Point at one, or tap it, to see whose it is.";
}

const colours = new Colours();
const chat = new Chat(call);
const map = new BlockMap(byId("map"), tell);
const hostMap = new BlockMap(byId("host-map"), tell);
const history = [];

function showMemory({ map: { device, host, requests, block_size: size } }) {
  const shown = map.show(device, requests, size);
  byId("block-size").textContent = size;
  byId("bar-used").style.width = `${(100 * device.num_used) / device.num_blocks}%`;
  const idle = device.cells.reduce((sum, cell) => sum + cell[5], 0);
  byId("bar-cached").style.width = `${(100 * idle) / device.num_blocks}%`;
  const used = make("b", "", device.num_used.toLocaleString("en"));
  byId("usage").replaceChildren(
    used, ` of ${plural(device.num_blocks, "block")} in use · ${device.num_shared} shared · ${idle} cached`,
  );
  const each = device.per_cell > 1 ? `A cell is ${device.per_cell} blocks. ` : "";
  const beyond = device.num_blocks - shown;
  byId("beyond").hidden = !each && beyond <= 0;
  byId("beyond").textContent = each + (beyond > 0 ? `${plural(beyond, "more block")}, not used yet.` : "");
  byId("host").hidden = !host.num_used;
  if (host.num_used) hostMap.show(host, requests, size);
}

function chip(request, index) {
  const element = make("span", "chip");
  element.style.setProperty("--hue", request.hue);
  element.append(make("b", "", request.label));
  const samples = request.num_samples > 1 ? ` · ${request.num_samples} samples` : "";
  const reading = request.num_computed < request.prompt_len && request.queue === "running";
  const done = reading ? ` · reading ${request.num_computed}/${request.prompt_len}` : ` · ${plural(request.output_len, "token")}`;
  element.append(samples, request.queue === "waiting" ? ` · ${plural(request.prompt_len, "token")}` : done);
  const cached = request.num_cached ? `, ${request.num_cached} of them from the cache` : "";
  element.title = `${plural(request.prompt_len, "prompt token")}${cached}; ${plural(request.num_blocks, "block")}`;
  element.addEventListener("pointerenter", () => light(index));
  element.addEventListener("pointerleave", () => light(null));
  return element;
}

function light(index) {
  map.light(index);
  hostMap.light(index);
}

let chipsShown = "";

function showQueues({ map: { requests, num_waiting: waiting } }) {
  const counts = { running: 0, swapped: 0, waiting: 0 };
  for (const one of requests) counts[one.queue]++;
  const now = JSON.stringify([requests, waiting]);
  if (now === chipsShown) return;
  chipsShown = now;
  for (const queue of Object.keys(counts)) {
    const chips = requests.map((one, i) => [one, i]).filter(([one]) => one.queue === queue).map(([one, i]) => chip(one, i));
    byId(`${queue}-count`).textContent = queue === "waiting" ? waiting : counts[queue];
    const more = queue === "waiting" ? waiting - counts.waiting : 0;
    if (more) chips.push(make("span", "chip is-unknown", `${more} more`));
    byId(queue).replaceChildren(...chips);
  }
}

/** Rates over about a second: a step gives tokens all at once. */
function showRates(engine) {
  const last = history.at(-1);
  if (last && engine.time < last.time) history.length = 0; // another engine
  if (last?.time !== engine.time) {
    const point = { time: engine.time, prompt_tokens: engine.prompt_tokens, generated_tokens: engine.generated_tokens };
    const before = history.findLast((one) => one.time <= point.time - 1) ?? history[0];
    for (const what of ["prompt", "generated"]) {
      const seconds = before ? point.time - before.time : 0;
      const tokens = before ? point[`${what}_tokens`] - before[`${what}_tokens`] : 0;
      point[what] = seconds ? Math.max(0, tokens / seconds) : 0;
    }
    history.push(point);
    while (history[0].time < point.time - HISTORY_S) history.shift();
  }
  for (const what of ["prompt", "generated"]) {
    byId(`${what}-rate`).textContent = Math.round(history.at(-1)[what]).toLocaleString("en");
    drawLine(byId(`${what}-line`), what);
  }
}

function drawLine(svg, what) {
  const end = history.at(-1).time;
  const most = Math.max(1, ...history.map((one) => one[what]));
  const points = history.map((one) => {
    const x = 240 * (1 - (end - one.time) / HISTORY_S);
    return `${x.toFixed(1)} ${(39 - (36 * one[what]) / most).toFixed(1)}`;
  });
  const line = `M${points.join("L")}`;
  const start = points[0].split(" ")[0];
  drawPath(svg, "area", `${line}L240 40L${start} 40Z`);
  drawPath(svg, "line", line);
}

function drawPath(svg, name, d) {
  let path = svg.querySelector(`.${name}`);
  if (!path) {
    path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", name);
    svg.append(path);
  }
  path.setAttribute("d", d);
}

function show({ age, step_seconds: step, server, engine }) {
  byId("model").textContent = server.model;
  document.title = `${server.model} · jax-engine`;
  chat.about(server);
  const late = age === null || age > 1.5;
  say(late ? "wait" : "live", late ? `a step has run for ${Math.round(Math.max(step ?? 0, age ?? 0))} s` : "live");
  if (!engine) return;
  const { requests } = engine.map;
  colours.keep(new Set(requests.map((one) => one.name)));
  for (const one of requests) {
    one.hue = colours.of(one.name);
    one.label = `#${one.name}`;
  }
  chat.colour(requests);
  showMemory(engine);
  showQueues(engine);
  showRates(engine);
}

/** Asks once; returns how long to wait before it is asked again. */
async function poll() {
  let response;
  try {
    response = await call(`state?engine=${ENGINE}`, { signal: AbortSignal.timeout(5000) });
  } catch {
    say("dead", "the server does not answer; trying again");
    return AGAIN_MS;
  }
  if (response.status === 401) return 0;
  if (!response.ok) {
    say("dead", response.status === 503 ? "the engine has ended; trying again" : "the server has a problem; trying again");
    return AGAIN_MS;
  }
  show(await response.json());
  return POLL_MS;
}

async function watch() {
  for (;;) {
    let pause = AGAIN_MS;
    try {
      pause = document.hidden ? AGAIN_MS : await poll();
    } catch (error) {
      say("dead", "the answer was cut off; trying again");
      console.error(error);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

tell(null);
watch();
