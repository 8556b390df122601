"""The chart as Helm renders it, held to Kubernetes' schemas. `.ci/deploy` has what this needs.

Without these packages it is skipped: the files that Helm has written are tested all the same.
"""

import copy
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.objects import (
    DEPLOY,
    Object,
    check_consistent,
    container,
    objects,
    of_kind,
    own_schema,
    pod_template,
)

helm = pytest.importorskip("helm_python", reason="no Helm here: .ci/deploy installs it")
kubernetes = pytest.importorskip("kubernetes_validate", reason="no schemas: .ci/deploy has them")

from scripts.kubernetes import CHART, MANIFESTS, VALUES, manifests, rendered  # noqa: E402

# The oldest that the chart takes, and the newest whose schemas are here.
VERSIONS = ("1.30", "1.37")
GPU = {"limits": {"cpu": 4, "memory": "8Gi", "nvidia.com/gpu": 2}}
ALL_ON: dict[str, Any] = {
    "model": "org/model",
    "servedModelName": "name",
    "env": [{"name": "JAX_ENGINE_LOG_FORMAT", "value": "json"}],
    "args": ["--max-model-len=4096"],
    "hfTokenSecret": {"name": "hf", "key": "t"},
    "apiKeySecret": {"name": "keys", "key": "k"},
    "imagePullSecrets": [{"name": "registry"}],
    "resources": {**GPU, "requests": GPU["limits"]},
    "cache": {"existingClaim": "weights"},
    "autoscaling": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "kvEvents": {"enabled": True, "hashSeed": "42"},
    "labels": {"team": "a"},
    "podLabels": {"llm-d.ai/inferenceServing": "true"},
    "podAnnotations": {"note": "x"},
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {}},
    "extraVolumes": [{"name": "models", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "models", "mountPath": "/models"}],
}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "all on": ALL_ON,
    "all on, in groups": {**ALL_ON, "kind": "LeaderWorkerSet"},
    "a cache of its own": {"cache": {"pvcStorage": ""}, "replicaCount": 3},
    "no shared memory, no wait": {"shm": {"enabled": False}, "preStopSeconds": 0},
    "no budget": {"maxUnavailablePodDisruptionBudget": ""},
    "another port": {"containerPort": 9000, "servicePort": 8080},
    "events go to a router": {"kvEvents": {"enabled": True, "endpoint": "tcp://picker:5557"}},
} | {path.name: yaml.safe_load(path.read_text("utf-8")) for path in VALUES.values()}


def made(values: dict[str, Any]) -> list[Object]:
    texts = rendered(values)
    return [one for name, text in texts.items() if name.endswith(".yaml") for one in objects(text)]


def check_schema(found: list[Object], version: str) -> None:
    """Raises an error of validation."""
    for one in found:
        schema = own_schema(one["kind"])
        if schema is None:
            kubernetes.validate(one, version, strict=True)
        else:
            jsonschema.Draft202012Validator(schema).validate(one)
    template = {**pod_template(found), "restartPolicy": None}
    template.pop("restartPolicy")
    whole = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}}
    kubernetes.validate({**whole, "template": template}, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_what_helm_renders_is_kubernetes(name: str, version: str) -> None:
    found = made(CASES[name])
    check_consistent(found)
    check_schema(found, version)


@pytest.mark.parametrize("spoiled", ["a field", "a type", "the template of a group"])
def test_wrong_objects_are_noticed(spoiled: str) -> None:
    found = copy.deepcopy(made({**ALL_ON, "kind": "LeaderWorkerSet"}))
    if spoiled == "a field":
        of_kind(found, "Service")["spec"]["port"] = 80
    elif spoiled == "a type":
        of_kind(found, "HorizontalPodAutoscaler")["spec"]["minReplicas"] = "1"
    else:
        pod_template(found)["spec"]["containers"][0]["argz"] = []
    with pytest.raises((kubernetes.utils.ValidationError, jsonschema.ValidationError)):
        check_schema(found, VERSIONS[0])


@pytest.mark.parametrize("file", VALUES)
def test_the_plain_manifests_are_the_charts(file: str) -> None:
    assert (MANIFESTS / file).read_text("utf-8") == manifests(file), "run scripts.kubernetes"


@pytest.mark.parametrize(("values", "word"), [
    ({"sever": "x"}, "sever"),
    ({"replicaCount": "two"}, "replicaCount"),
    ({"kind": "StatefulSet"}, "kind"),
    ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    ({"cache": {"pvcStorage": "much"}}, "pvcStorage"),
    ({"containerPort": 70000}, "containerPort"),
    ({"kvEvents": {"endpoint": "5557"}}, "endpoint"),
])  # fmt: skip
def test_values_that_are_none_are_refused_by_name(values: dict[str, Any], word: str) -> None:
    with pytest.raises(helm.HelmError, match=word):
        rendered(values)


def test_several_pods_need_a_volume_that_several_nodes_can_write() -> None:
    for more in ({"replicaCount": 2}, {"autoscaling": {"enabled": True, "maxReplicas": 2}}):
        with pytest.raises(helm.HelmError, match="ReadWriteMany for 2 pods, got ReadWriteOnce"):
            rendered(more)
        rendered({**more, "cache": {"accessMode": "ReadWriteMany"}})
        rendered({**more, "cache": {"existingClaim": "shared"}})


def test_values_reach_the_container() -> None:
    own, spec = container(made(ALL_ON)), pod_template(made(ALL_ON))["spec"]
    assert own["args"][0] == "org/model" and own["args"][-1] == "--max-model-len=4096"
    assert "--served-model-name=name" in own["args"]
    secrets = {
        one["name"]: one["valueFrom"]["secretKeyRef"]
        for one in own["env"]
        if "secretKeyRef" in one.get("valueFrom", {})
    }
    assert secrets == {
        "HF_TOKEN": {"name": "hf", "key": "t"},
        "VLLM_API_KEY": {"name": "keys", "key": "k"},
    }
    claims = [one["persistentVolumeClaim"] for one in spec["volumes"] if one["name"] == "cache"]
    assert claims == [{"claimName": "weights"}]
    assert not [one for one in made(ALL_ON) if one["kind"] == "PersistentVolumeClaim"]
    monitor = of_kind(made(ALL_ON), "ServiceMonitor")
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"]["name"] == "keys"


def test_a_release_of_another_name_is_another() -> None:
    def names(release: str) -> set[str]:
        texts = rendered({}, release)
        return {one["metadata"]["name"] for text in texts.values() if "kind:" in text
                for one in objects(text)}  # fmt: skip

    assert not names("one") & names("two")
    assert "one-jax-engine" in names("one") and "my-jax-engine" in names("my-jax-engine")


def test_helm_finds_nothing_to_complain_of() -> None:
    found = helm.lint(str(CHART))
    assert found["errors"] == []
    # Nor a warning; severity 1 is the wish for an icon.
    assert [one for one in found["messages"] if one["severity"] > 1] == []


def test_the_notes_name_the_service() -> None:
    for kind, service in (
        ("Deployment", "x-jax-engine"),
        ("LeaderWorkerSet", "x-jax-engine-leader"),
    ):
        notes = rendered({"kind": kind}, "x")["NOTES.txt"]
        assert f"service/{service} 8000:80" in notes
        assert (DEPLOY / "jax-engine").name in notes
