// llama.cpp's prebuilt library through node-llama-cpp, in the lowest of its interfaces: this file
// fills llama.cpp's batches itself, a token of every running request and then whole prompts, as
// a server does. A call of decodeBatch is a step of all of them; each token is then sampled by a
// call of its own. All of a pass is counted; "decode_s" says how much of it was in decodeBatch.
//
// It speaks the same lines as wire.py.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import {pathToFileURL} from "node:url";

const BATCH = 2048; // tokens of a step, as llama.cpp's own default

const say = (message) => fs.writeSync(1, JSON.stringify(message) + "\n");

// The folder of a package in the node_modules above this interpreter.
function installed(name) {
    for (let at = path.dirname(process.execPath); ; at = path.dirname(at)) {
        const found = path.join(at, "node_modules", name);
        if (fs.existsSync(found)) return found;
        if (at === path.dirname(at)) throw new Error(`${name} is not installed above ${process.execPath}`);
    }
}

async function load(settings) {
    const folder = installed("node-llama-cpp");
    const {getLlama} = await import(pathToFileURL(path.join(folder, "dist", "index.js")).href);
    const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: "error"});
    const bindings = llama._bindings;
    const model = new bindings.AddonModel(settings.gguf, {addonExports: bindings, gpuLayers: 0, useMmap: true});
    if (!(await model.init())) throw new Error(`${settings.gguf} cannot be loaded`);
    const context = new bindings.AddonContext(model, {
        contextSize: settings.max_num_seqs * settings.max_model_len,
        batchSize: BATCH,
        sequences: settings.max_num_seqs,
        flashAttention: "auto",
        threads: settings.threads ?? os.cpus().length,
    });
    if (!(await context.init())) throw new Error("no context");
    const sampler = new bindings.AddonSampler(model);
    sampler.applyConfig({temperature: 0});
    const {version} = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    const versions = {"node-llama-cpp": version, "llama.cpp": llama.llamaCppRelease.release};
    return [(requests) => run(context, sampler, requests, settings.max_num_seqs), versions];
}

// One pass: the greedy tokens of each request, and when they came.
async function run(context, sampler, requests, slots) {
    if (requests.some((one) => one.n > 1)) throw new Error("samples are not drawn here");
    const start = performance.now();
    const now = () => (performance.now() - start) / 1000;
    const rows = requests.map(() => ({first_s: null, finish_s: null, tokens: [[]]}));
    const free = Array.from({length: slots}, (_, slot) => slot);
    const waiting = requests.map((_, index) => index);
    let running = [];
    let decode = 0;
    while (waiting.length || running.length) {
        let room = BATCH - running.length;
        const wanted = running.map((one) => [one, [rows[one.index].tokens[0].at(-1)]]);
        while (waiting.length && free.length && requests[waiting[0]].prompt.length <= room) {
            const one = {index: waiting.shift(), slot: free.shift(), position: 0};
            wanted.push([one, requests[one.index].prompt]);
            room -= requests[one.index].prompt.length;
        }
        context.initBatch(wanted.reduce((sum, [, tokens]) => sum + tokens.length, 0));
        const logits = wanted.map(([one, tokens]) => {
            const last = Uint32Array.of(tokens.length - 1);
            const at = context.addToBatch(one.slot, one.position, Uint32Array.from(tokens), last);
            one.position += tokens.length;
            return at[0];
        });
        const before = now();
        await context.decodeBatch();
        decode += now() - before;
        running = [];
        for (const [row, [one]] of wanted.entries()) {
            const found = rows[one.index];
            found.tokens[0].push(await context.sampleToken(logits[row], sampler));
            found.finish_s = now();
            found.first_s ??= found.finish_s;
            if (found.tokens[0].length < requests[one.index].output_len) running.push(one);
            else {
                context.disposeSequence(one.slot);
                free.push(one.slot);
            }
        }
    }
    return {seconds: now(), decode_s: decode, requests: rows};
}

async function serve() {
    console.log = console.info = console.error; // what libraries print must not reach the driver
    const started = performance.now();
    const [pass, versions] = await load(JSON.parse(process.argv[2]));
    say({loaded_s: (performance.now() - started) / 1000, versions});
    for await (const line of readline.createInterface({input: process.stdin})) {
        say(await pass(JSON.parse(line).requests));
    }
    process.exit(0);
}

serve().catch((error) => {
    console.error(error);
    say({error: String(error)});
    process.exit(0);
});
