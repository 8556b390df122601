// llama.cpp's prebuilt library through node-llama-cpp's own loop over the tokens of one sequence, with
// or without its prompt lookup ("lookup" in the settings: the lengths of patterns and predictions).
// Requests are answered one after another.
//
// It speaks the same lines as wire.py.

import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import {pathToFileURL} from "node:url";

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
    const library = await import(pathToFileURL(path.join(folder, "dist", "index.js")).href);
    const llama = await library.getLlama({gpu: false, build: "never", skipDownload: true, logLevel: "error"});
    const model = await llama.loadModel({modelPath: settings.gguf});
    const context = await model.createContext({
        contextSize: settings.max_model_len,
        sequences: 1,
        flashAttention: "auto",
        threads: os.cpus().length,
    });
    const {version} = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
    const versions = {"node-llama-cpp": version, "llama.cpp": llama.llamaCppRelease.release};
    return [(requests) => run(library, context, settings.lookup, requests), versions];
}

// One pass: the greedy tokens of each request, and when they came.
async function run(library, context, lookup, requests) {
    const start = performance.now();
    const now = () => (performance.now() - start) / 1000;
    const rows = [];
    for (const one of requests) {
        const tokenPredictor = lookup && new library.InputLookupTokenPredictor(lookup);
        const sequence = context.getSequence(tokenPredictor ? {tokenPredictor} : {});
        tokenPredictor?.updateInputTokens(one.prompt);
        const found = {first_s: null, finish_s: null, tokens: [[]]};
        const tokens = sequence.evaluate(one.prompt, {temperature: 0, yieldEogToken: true});
        for await (const token of tokens) {
            found.tokens[0].push(token);
            found.finish_s = now();
            found.first_s ??= found.finish_s;
            if (found.tokens[0].length === one.output_len) break;
        }
        await sequence.dispose();
        rows.push(found);
    }
    return {seconds: now(), requests: rows};
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
