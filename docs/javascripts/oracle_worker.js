/*
 * A web worker that runs the oracle: Pyodide's core and the files of reference/ and playground/.
 *
 * Messages to it: {id, start: URL of the site's folder oracle/}, {id, module, name, argument} to call
 * a function with one JSON argument, {id, code, before, numpy} to run code, behind NumPy if that is true.
 * It answers {id, result} or {id, error}, and {says} while it starts.
 */
"use strict";

let python = null;
let site = ""; // its folder oracle/
let hasNumpy = false;

async function bytes(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status}`);
  return answer;
}

/** The largest file first, with its progress: Pyodide then finds it in the browser's cache. */
async function warm(url) {
  const answer = await bytes(url);
  const total = Number(answer.headers.get("Content-Length")) || 0;
  const reader = answer.body.getReader();
  for (let read = 0, last = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    read += value.length;
    if (read - last > 500000) {
      last = read;
      const of = total ? ` of ${(total / 1e6).toFixed(1)}` : "";
      self.postMessage({ says: `fetching Python: ${(read / 1e6).toFixed(1)}${of} MB` });
    }
  }
}

/** Pyodide lacks `backtrace`, by which NumPy finds out who holds a large array. 0 says that this is not known. */
function addBacktrace(module) {
  module.LDSO.loadedLibsByName.backtrace = { name: "backtrace", refcount: 1, global: false, exports: { backtrace: () => 0 } };
  module.loadDynamicLibrary("backtrace", { global: true });
}

async function addNumpy() {
  if (hasNumpy) return;
  self.postMessage({ says: "fetching NumPy (3 MB)" });
  const archive = await (await bytes(`${site}pyodide/numpy.zip`)).arrayBuffer();
  self.postMessage({ says: "starting NumPy" });
  addBacktrace(python._module);
  python.unpackArchive(archive, "zip", { extractDir: "/numpy" });
  python.runPython(`
import sys
sys.path.insert(0, "/numpy")
from playground.in_browser import leave_shapes_unchecked
leave_shapes_unchecked()
import numpy
`);
  hasNumpy = true;
}

async function start(folder) {
  site = folder;
  self.postMessage({ says: "fetching Python" });
  await warm(`${folder}pyodide/pyodide.asm.wasm`);
  importScripts(`${folder}pyodide/pyodide.js`);
  self.postMessage({ says: "starting Python" });
  python = await self.loadPyodide({ indexURL: `${folder}pyodide/` });
  self.postMessage({ says: "reading the oracle" });
  const files = await (await bytes(`${folder}files.json`)).json();
  for (const [path, text] of Object.entries(files)) {
    python.FS.mkdirTree(`/oracle/${path.slice(0, path.lastIndexOf("/"))}`);
    python.FS.writeFile(`/oracle/${path}`, text);
  }
  python.runPython(`
import sys
sys.path.insert(0, "/oracle")
from playground.in_browser import call, run_code
`);
}

self.onmessage = async ({ data }) => {
  try {
    let result = null;
    if (data.start) await start(data.start);
    else if (data.code !== undefined) {
      if (data.numpy) await addNumpy();
      result = python.globals.get("run_code")(data.code, data.before);
    }
    else result = python.globals.get("call")(data.module, data.name, data.argument);
    self.postMessage({ id: data.id, result });
  } catch (error) {
    self.postMessage({ id: data.id, error: String(error.message ?? error) });
  }
};
