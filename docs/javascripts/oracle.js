/*
 * The oracle in the page, as `window.oracle`. Nothing is loaded until `load` is called.
 *
 *   supported, why          whether a page can start it; if not, why
 *   load(says)              resolves when it can be used; `says` is called with lines of progress
 *   call(module, name, x)   the result of a Python function, as JSON in and out
 *   numpy                   whether the site has NumPy
 *   run({code, before, numpy}, seconds)  {printed, error}; `before` runs first, and what it prints is not shown
 *   stop()                  ends what is running
 *
 * What runs longer than SECONDS is stopped, and Python starts again at the next use.
 */
(() => {
  "use strict";

  const PYTHON = true; // scripts/oracle_in_site.py makes it false in a site that was built without
  const NUMPY = true; // likewise
  const IMPORTS = /\b(?:import|from)\s+numpy\b/;
  const SECONDS = 60;
  const here = document.currentScript.src;
  const folder = new URL("../oracle/", here).href;
  let worker = null;
  let loading = null;
  let says = () => {};
  let number = 0;
  const waiting = new Map(); // by the number of a message: its promise's ends, and its timer

  function stop(reason) {
    worker?.terminate();
    worker = null;
    loading = null;
    for (const { reject, timer } of waiting.values()) {
      clearTimeout(timer);
      reject(new Error(reason));
    }
    waiting.clear();
  }

  function take({ data }) {
    if (data.says) return says(data.says);
    const { resolve, reject, timer } = waiting.get(data.id) ?? {};
    clearTimeout(timer);
    waiting.delete(data.id);
    if (data.error === undefined) resolve?.(data.result);
    else reject?.(new Error(data.error));
  }

  function ask(message, seconds) {
    const id = ++number;
    return new Promise((resolve, reject) => {
      const late = () => stop(`stopped after ${seconds} seconds: it may never end`);
      waiting.set(id, { resolve, reject, timer: setTimeout(late, 1000 * seconds) });
      worker.postMessage({ id, ...message });
    });
  }

  function load(line = () => {}) {
    says = line;
    if (!loading) {
      worker = new Worker(new URL("oracle_worker.js", here));
      worker.onmessage = take;
      worker.onerror = () => stop("Python could not be started");
      loading = ask({ start: folder }, 300).catch((error) => {
        stop(error.message);
        throw error;
      });
    }
    return loading;
  }

  async function call(module, name, argument) {
    await load(says);
    return JSON.parse(await ask({ module, name, argument: JSON.stringify(argument) }, SECONDS));
  }

  async function run({ code, before = "", numpy = false }, seconds = SECONDS) {
    await load(says);
    const wanted = NUMPY && (numpy || IMPORTS.test(code)); // a reader may write the import
    if (wanted) await ask({ code: "", before: "", numpy: true }, 300); // its fetching does not count
    return JSON.parse(await ask({ code, before, numpy: wanted }, seconds));
  }

  function reason() {
    if (!here.startsWith("http")) return "Served by a web server (as by “mkdocs serve”), this page runs the oracle here: a page that is opened as a file cannot start Python.";
    return PYTHON ? "" : "This site was built without Python, so the oracle cannot run in its pages.";
  }

  const why = reason();
  window.oracle = { supported: why === "", why, numpy: NUMPY, load, call, run, stop: () => stop("Stopped.") };
})();
