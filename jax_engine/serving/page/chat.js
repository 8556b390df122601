/** The conversation: requests to the API, their streams, and what they say, as text nodes only. */

import { make, plural } from "./map.js";

const IDEAS = ["Why is the sky blue?", "Write a short story about a paging system.", "Name five rivers of Europe."];
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

/** One request, and the bubble that its samples fill. */
class Answer {
  constructor(samples) {
    this.id = null;
    this.texts = [];
    this.element = make("article", "answer is-writing");
    const head = make("div", "head");
    this.who = make("b", "", "…");
    this.counts = make("span");
    head.append(this.who, this.counts);
    const list = make("div", samples > 1 ? "samples is-many" : "samples");
    for (let i = 0; i < samples; i++) {
      const sample = make("div", "sample");
      sample.dataset.number = i + 1;
      this.texts.push(document.createTextNode(""));
      sample.append(this.texts[i]);
      list.append(sample);
    }
    this.element.append(head, list);
  }

  take(event, seconds) {
    this.id = event.id ?? this.id;
    for (const choice of event.choices ?? []) {
      const text = this.texts[choice.index];
      text?.appendData(choice.delta?.content ?? choice.text ?? "");
      if (choice.finish_reason) text?.parentElement.classList.add("is-ended");
    }
    if (!event.usage) return;
    const { prompt_tokens: prompt, completion_tokens: output, prompt_tokens_details: details } = event.usage;
    const cached = details?.cached_tokens ? ` (${details.cached_tokens} from the cache)` : "";
    this.counts.textContent = `${plural(prompt, "token")}${cached} → ${output} · ${(output / seconds).toFixed(1)} tokens/s`;
  }

  /** Takes the colour that the request has in the map. */
  know(request) {
    this.who.textContent = request.label;
    this.element.classList.add("is-known");
    this.element.style.setProperty("--hue", request.hue);
  }

  end(problem) {
    this.element.classList.remove("is-writing");
    if (this.who.textContent === "…") this.who.textContent = "";
    if (problem) this.element.append(make("p", "problem", problem));
  }
}

export class Chat {
  #call;
  #about = null;
  #messages = [];
  #answers = new Set();
  #stop = new AbortController();
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

  /** Gives answers the colours of their requests. */
  colour(requests) {
    const found = new Map(requests.filter((one) => one.request_id).map((one) => [one.request_id, one]));
    for (const answer of this.#answers) {
      if (found.has(answer.id)) answer.know(found.get(answer.id));
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
    if (!text || this.#open || !this.#about) return;
    byId("text").value = "";
    byId("welcome").hidden = true;
    this.#stop = new AbortController();
    this.#messages.push({ role: "user", content: text });
    const messages = [...this.#messages];
    const samples = Number(byId("samples").value);
    const group = make("div", count > 1 ? "answers is-many" : "answers");
    byId("log").append(make("p", "asked", text), group);
    const answers = Array.from({ length: count }, () => new Answer(samples));
    group.append(...answers.map((one) => one.element));
    this.#scroll(true);
    await Promise.all(answers.map((one) => this.#run(one, messages, text, samples)));
    const said = answers[0].texts[0].data;
    if (said) this.#messages.push({ role: "assistant", content: said });
    else this.#messages.pop();
  }

  async #run(answer, messages, text, n) {
    this.#count(1);
    this.#answers.add(answer);
    let problem = "";
    try {
      problem = await this.#stream(answer, messages, text, n);
    } catch (error) {
      if (error.name === "AbortError") problem = "stopped";
      else problem = "The connection to the server broke.";
    }
    answer.end(problem);
    this.#answers.delete(answer);
    this.#count(-1);
  }

  async #stream(answer, messages, text, n) {
    const { chat, model } = this.#about;
    const body = {
      model, n, stream: true, stream_options: { include_usage: true },
      temperature: Number(byId("temperature").value), max_tokens: Number(byId("max-tokens").value),
      ...(chat ? { messages } : { prompt: text }),
    };
    const begun = performance.now();
    const response = await this.#call(chat ? "v1/chat/completions" : "v1/completions", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal: this.#stop.signal,
    });
    if (!response.ok) return (await response.json()).error.message;
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) return event.error.message;
      answer.take(event, (performance.now() - begun) / 1000);
      this.#scroll(false);
    }
    return "";
  }

  #count(change) {
    this.#open += change;
    byId("stop").hidden = !this.#open;
    byId("send").disabled = byId("many").disabled = this.#open > 0;
  }

  /** To the end, unless the reader has gone up. */
  #scroll(always) {
    const log = byId("log");
    if (always || log.scrollHeight - log.scrollTop - log.clientHeight < 80) log.scrollTop = log.scrollHeight;
  }
}
