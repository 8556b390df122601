"""Writes deploy/kubernetes/ from the chart, for those who apply plain manifests.

    .venv-deploy/bin/python -m scripts.kubernetes

Needs Helm as a library (`tests/deploy/requirements.txt`); `.ci/deploy` makes that environment.
"""

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
CHART = ROOT / "deploy" / "jax-engine"
MANIFESTS = ROOT / "deploy" / "kubernetes"
# The manifests of each file: the chart with these values.
VALUES = {
    "cpu.yaml": CHART / "values.yaml",
    "cuda.yaml": CHART / "values-cuda.yaml",
    "leaderworkerset.yaml": CHART / "values-leaderworkerset.yaml",
}
FIRST = "# Written by `python -m scripts.kubernetes` from the chart with {}.\n"
# Labels of Helm's own, and its name for what it installs.
OF_HELM = ("app.kubernetes.io/managed-by: Helm",)
RELEASE = "jax-engine"


def rendered(values: dict[str, Any], name: str = RELEASE) -> dict[str, str]:
    """What Helm makes of the chart: file names of `templates/`, and their texts.

    Args:
        values: What differs from `values.yaml`.

    Raises:
        helm_python.HelmError: The values are not those of the schema, or a template refuses them.
    """
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=name, namespace="default")
    return {Path(path).name: text for path, text in files.items()}


def manifests(file: str) -> str:
    """The text of one file of `MANIFESTS`."""
    values = VALUES[file]
    texts = rendered(yaml.safe_load(values.read_text("utf-8")))
    documents = [text.strip() for name, text in sorted(texts.items()) if name.endswith(".yaml")]
    lines = "\n---\n".join(document for document in documents if document).splitlines()
    kept = [line for line in lines if line.strip() not in OF_HELM]
    return FIRST.format(values.relative_to(ROOT)) + "\n".join(kept) + "\n"


def main() -> None:
    MANIFESTS.mkdir(exist_ok=True)
    for file in VALUES:
        (MANIFESTS / file).write_text(manifests(file), "utf-8")


if __name__ == "__main__":
    main()
