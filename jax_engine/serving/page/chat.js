/** The conversation: requests to the API, their streams, and what they say, as text nodes only. */

import { make, plural } from "./map.js";

const IDEAS = ["Why is the sky blue?", "Write a short story about a paging system.", "Name five rivers of Europe."];
const WRITE_MS = 40; // between two looks at what has come
const byId = (id) => document.getElementById(id);

/** The data of each server-sent event of an answer. */
async function* events(response) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of chunks(response.body.getReader())) {
    rest += decoder.decode(bytes, { stream: true });
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

async function* chunks(reader) {
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** One request of the engine, and the bubble that its samples fill. */
class Answer {
  constructor(samples) {
    this.texts = [];
    this.news = Array(samples).fill(""); // what is not shown yet
    this.element = make("article", "answer is-writing");
    this.who = make("b", "who", "…");
    const list = make("div", samples > 1 ? "samples is-many" : "samples");
    for (let i = 0; i < samples; i++) {
      const sample = make("div", "sample");
      sample.dataset.number = i + 1;
      this.texts.push(document.createTextNode(""));
      sample.append(this.texts[i]);
      list.append(sample);
    }
    this.element.append(this.who, list);
  }

  take(sample, choice) {
    this.news[sample] += choice.delta?.content ?? choice.text ?? "";
    if (choice.finish_reason) this.texts[sample].parentElement.classList.add("is-ended");
  }

  /** Shows what has come. */
  write() {
    this.texts.forEach((text, i) => {
      if (this.news[i]) text.appendData(this.news[i]);
      this.news[i] = "";
    });
  }

  /** Takes the colour that the request has in the map. */
  know(request) {
    this.who.textContent = request.label;
    this.element.classList.add("is-known");
    this.element.style.setProperty("--hue", request.hue);
  }

  end() {
    this.write();
    this.element.classList.remove("is-writing");
    if (this.who.textContent === "…") this.who.remove();
  }
}

export class Chat {
  #call;
  #about = null;
  #messages = [];
  #calls = new Set(); // that are open
  #stop = new AbortController();
  #write = null;
  #open = 0;

  /** `call` is `fetch` with the key. */
  constructor(call) {
    this.#call = call;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(1);
    });
    byId("many").addEventListener("click", () => this.#send(8));
    byId("stop").addEventListener("click", () => this.#stop.abort());
    byId("new").addEventListener("click", () => this.#clear());
    byId("text").addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send(1);
    });
    byId("text").addEventListener("input", () => byId("missing").replaceChildren());
    for (const idea of IDEAS) {
      const button = make("button", "", idea);
      button.type = "button";
      button.addEventListener("click", () => {
        byId("text").value = idea;
        this.#send(1);
      });
      byId("ideas").append(button);
    }
  }

  /** What the server says of itself; the first time, a limit that fits it. */
  about(server) {
    if (!this.#about) {
      const limit = byId("max-tokens");
      limit.value = Math.max(1, Math.min(Number(limit.value), Math.floor(server.max_model_len / 4)));
    }
    this.#about = server;
  }

  /** Gives bubbles the colours of their requests. */
  colour(requests) {
    for (const { id, answers } of this.#calls) {
      for (const one of requests) if (id && one.request_id === id) answers[one.prompt]?.know(one);
    }
  }

  #clear() {
    this.#stop.abort();
    this.#messages = [];
    byId("log").replaceChildren(byId("welcome"));
    byId("welcome").hidden = false;
  }

  async #send(count) {
    const text = byId("text").value.trim();
    if (this.#calls.size || !this.#about) return;
    byId("missing").textContent = text ? "" : this.#missing(count);
    if (!text) return byId("text").focus();
    byId("text").value = "";
    byId("welcome").hidden = true;
    this.#stop = new AbortController();
    this.#messages.push({ role: "user", content: text });
    const samples = Number(byId("samples").value);
    const group = make("div", count > 1 ? "answers is-many" : "answers");
    const sum = make("p", "sum");
    byId("log").append(make("p", "asked", text), group, sum);
    const answers = Array.from({ length: count }, () => new Answer(samples));
    group.append(...answers.map((one) => one.element));
    this.#scroll(true);
    await this.#run({ id: null, answers, samples, text, sum });
    const said = answers[0].texts[0].data;
    if (said) this.#messages.push({ role: "assistant", content: said });
    else this.#messages.pop();
  }

  /** What an empty box asks for. */
  #missing(count) {
    const sent = count > 1 ? `, and ${count} requests with it are sent` : "";
    return `Type a message first${sent}.`;
  }

  async #run(call) {
    this.#calls.add(call);
    this.#buttons();
    let problem = "";
    try {
      problem = await this.#stream(call);
    } catch (error) {
      problem = error.name === "AbortError" ? "stopped" : "The connection to the server broke.";
    }
    for (const one of call.answers) one.end();
    if (problem) call.sum.after(make("p", "problem", problem));
    this.#calls.delete(call);
    this.#buttons();
    this.#scroll(false);
  }

  /** Reads the stream of one call to its end; returns what went wrong. */
  async #stream(call) {
    const begun = performance.now();
    const response = await this.#ask(call);
    if (!response.ok) return (await response.json()).error.message;
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) return event.error.message;
      call.id = event.id;
      for (const choice of event.choices) {
        call.answers[Math.floor(choice.index / call.samples)].take(choice.index % call.samples, choice);
      }
      if (event.usage) this.#sum(call, event.usage, (performance.now() - begun) / 1000);
      this.#write ??= setTimeout(() => this.#writeAll(), WRITE_MS);
    }
    return "";
  }

  /**
   * Several requests go as one list of prompts over one connection. A browser opens six to a server,
   * and the map needs one of them.
   */
  async #ask({ answers, samples, text }) {
    const { chat, model } = this.#about;
    const given = chat ? { messages: [...this.#messages] } : { prompt: text };
    const response = await this.#post("tokenize", { ...given, model });
    if (!response.ok) return response;
    const { tokens, max_model_len: most } = await response.json();
    const wanted = Math.min(Number(byId("max-tokens").value), most - tokens.length);
    const sampling = {
      model, n: samples, stream: true, stream_options: { include_usage: true },
      temperature: Number(byId("temperature").value), max_tokens: Math.max(wanted, 1),
    };
    if (chat && answers.length === 1) return this.#post("v1/chat/completions", { ...given, ...sampling });
    return this.#post("v1/completions", { prompt: answers.map(() => tokens), ...sampling });
  }

  #post(path, body) {
    const headers = { "Content-Type": "application/json" };
    return this.#call(path, { method: "POST", headers, body: JSON.stringify(body), signal: this.#stop.signal });
  }

  #sum({ sum }, usage, seconds) {
    const { prompt_tokens: prompt, completion_tokens: output, prompt_tokens_details: details } = usage;
    const cached = details?.cached_tokens ? `, ${details.cached_tokens} of them from the cache` : "";
    sum.textContent = `${plural(prompt, "prompt token")}${cached}; ${output} generated, ${(output / seconds).toFixed(1)} a second`;
  }

  #buttons() {
    byId("stop").hidden = !this.#calls.size;
    byId("send").disabled = byId("many").disabled = this.#calls.size > 0;
  }

  /** A layout costs more than a token, and a fast engine gives thousands a second. */
  #writeAll() {
    this.#write = null;
    for (const { answers } of this.#calls) for (const one of answers) one.write();
    this.#scroll(false);
  }

  /** To the end, unless the reader has gone up. */
  #scroll(always) {
    const log = byId("log");
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
  }
}
