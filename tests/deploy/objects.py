"""Kubernetes objects as dictionaries, and what the tests ask of them. Imports nothing of ours."""

import json
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
SCHEMAS = Path(__file__).parent / "schemas"
Object = dict[str, Any]


def objects(text: str) -> list[Object]:
    """The objects of a YAML text with `---` between them."""
    return [one for one in yaml.safe_load_all(text) if one]


def of_kind(found: list[Object], kind: str) -> Object:
    (one,) = [one for one in found if one["kind"] == kind]
    return one


def pod_template(found: list[Object]) -> Object:
    """The template of the pods, of a Deployment or a LeaderWorkerSet."""
    for one in found:
        if one["kind"] == "Deployment":
            return dict(one["spec"]["template"])
        if one["kind"] == "LeaderWorkerSet":
            return dict(one["spec"]["leaderWorkerTemplate"]["workerTemplate"])
    raise AssertionError("no pods")


def container(found: list[Object]) -> Object:
    """The one container of a pod."""
    (one,) = pod_template(found)["spec"]["containers"]
    return dict(one)


def quantity(value: object) -> float:
    """A Kubernetes quantity as a number."""
    text = str(value)
    units = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "m": 1e-3, "k": 1e3, "M": 1e6}
    for unit, factor in {**units, "G": 1e9, "T": 1e12}.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * factor
    return float(text)


def check_consistent(found: list[Object]) -> None:
    """What no schema says: names that must agree, and sums that must come out."""
    labels = pod_template(found)["metadata"]["labels"]
    # A LeaderWorkerSet numbers its pods itself.
    labels = {**labels, "leaderworkerset.sigs.k8s.io/worker-index": "0"}
    service = of_kind(found, "Service")
    selectors = [service["spec"]["selector"]]
    for one in found:
        if one["kind"] in ("Deployment", "PodDisruptionBudget"):
            selectors.append(one["spec"]["selector"]["matchLabels"])
        if one["kind"] == "ServiceMonitor":
            wanted = one["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= service["metadata"]["labels"].items()
            ports = {port["name"] for port in service["spec"]["ports"]}
            assert {end["port"] for end in one["spec"]["endpoints"]} <= ports
        if one["kind"] == "HorizontalPodAutoscaler":
            target = one["spec"]["scaleTargetRef"]
            scaled = of_kind(found, target["kind"])
            assert target["name"] == scaled["metadata"]["name"]
            assert target["apiVersion"] == scaled["apiVersion"]
            assert "replicas" not in scaled["spec"], "each upgrade would undo the autoscaler's"
        if one["kind"] == "LeaderWorkerSet":
            # Its controller makes a headless Service of its own name.
            assert one["metadata"]["name"] != service["metadata"]["name"]
    assert all(selector.items() <= labels.items() for selector in selectors)
    _check_container(found, service)


def _check_container(found: list[Object], service: Object) -> None:
    spec, own = pod_template(found)["spec"], container(found)
    ports = {one["name"]: one["containerPort"] for one in own["ports"]}
    named = [own[probe]["httpGet"]["port"] for probe in PROBES]
    named += [port["targetPort"] for port in service["spec"]["ports"]]
    assert set(named) <= set(ports)
    volumes = {one["name"] for one in spec["volumes"]}
    assert {one["name"] for one in own["volumeMounts"]} <= volumes
    claims = {one["metadata"]["name"] for one in found if one["kind"] == "PersistentVolumeClaim"}
    for one in spec["volumes"]:
        claim = one.get("persistentVolumeClaim", {}).get("claimName")
        assert claim is None or not claims or claim in claims
    limits, requests = own["resources"]["limits"], own["resources"]["requests"]
    assert {name for name, most in limits.items() if quantity(requests[name]) > quantity(most)} == (
        set()
    )
    waits = own.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    (drains,) = [one for one in own["args"] if one.startswith("--shutdown-timeout=")]
    assert spec["terminationGracePeriodSeconds"] > waits + int(drains.partition("=")[2])


PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def own_schema(kind: str) -> Object | None:
    """The schema of a custom resource, or None if Kubernetes has the kind."""
    path = SCHEMAS / f"{kind}.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else None
