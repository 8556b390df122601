"""The site's search without the site: pages from their sources, the theme's own worker in Node.

Outputs of cells and pages of the API are not in the index: both need a build that takes minutes.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scripts import docs_hooks
from tests.meta.trees import ROOT
from tests.support.patience import HANG_S

NODE = shutil.which("node") or ""
SHIM = """
const fs = require("fs"), waiting = [];
globalThis.self = globalThis;
globalThis.location = { href: "http://localhost/" };
globalThis.addEventListener = (kind, handler) => { globalThis.handler = handler; };
globalThis.postMessage = (message) => waiting.shift()(message);
const ask = (message) => new Promise((done) => {
  waiting.push(done);
  globalThis.handler({ data: message });
});
const { worker, index, queries } = JSON.parse(fs.readFileSync(0, "utf-8"));
(0, eval)(fs.readFileSync(worker, "utf-8"));
(async () => {
  await ask({ type: 0, data: index });
  const found = {};
  for (const query of queries) {
    const { items } = (await ask({ type: 2, data: query })).data;
    found[query] = items.map((sections) => sections.map((section) => section.location));
  }
  console.log(JSON.stringify(found));
})();
"""


def index() -> dict[str, Any]:
    """What the worker is set up with, as `search_index.json` has it."""
    import markdown
    from material.plugins.search.plugin import SearchIndex
    from mkdocs.config import load_config
    from mkdocs.structure.toc import get_toc
    from mkdocs.utils.meta import get_data

    config = load_config(str(ROOT / "mkdocs.yml"))
    plugin = config.plugins["material/search"]
    plugin.on_config(config)
    found = SearchIndex(**plugin.config)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT / "docs").as_posix()
        if name.startswith("api/"):
            continue
        made = markdown.Markdown(
            extensions=config.markdown_extensions, extension_configs=config.mdx_configs
        )
        source, meta = get_data(path.read_text("utf-8"))
        text = docs_hooks.with_code_and_results(source)
        content = made.convert(re.sub(r"\{\{.*?\}\}", "", text))
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        url = name.removesuffix("index.md").removesuffix(".md")
        url += "/" if url and not url.endswith("/") else ""
        found.add_entry_from_context(
            SimpleNamespace(
                content=content, toc=get_toc(made.toc_tokens), url=url, meta=meta,
                title=title[1] if title else "",
            )
        )  # fmt: skip
    return dict(json.loads(found.generate_search_index(None)))


def search(queries: list[str]) -> dict[str, list[list[str]]]:
    """For each query the pages in their order, each a list of its sections that were found."""
    import material

    workers = Path(material.__file__).parent / "templates/assets/javascripts/workers"
    asked = {
        "worker": str(next(workers.glob("search.*.min.js"))),
        "index": {**index(), "options": {"suggest": False}},
        "queries": queries,
    }
    done = subprocess.run(
        [NODE, "-e", SHIM], input=json.dumps(asked), capture_output=True, text=True,
        check=True, timeout=HANG_S,
    )  # fmt: skip
    return dict(json.loads(done.stdout))
