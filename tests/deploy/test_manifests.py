"""What deploy/ says of the server is so: flags, paths, variables, metrics, users, volumes."""

import copy
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

from jax_engine.cli import make_parser
from jax_engine.commands.api_keys import KEY_VARIABLES
from jax_engine.commands.serve_flags import check
from jax_engine.config.engine_args import EngineArgs
from jax_engine.config.engine_config import EngineConfig
from jax_engine.errors import ConfigError
from tests.deploy.objects import (
    DEPLOY,
    MANIFESTS,
    PROBES,
    ROOT,
    Object,
    check_consistent,
    container,
    objects,
    of_kind,
    own_schema,
    pod_template,
)
from tests.serving.test_metrics_page import GAUGES
from tests.support.patience import HANG_S
from tests.support.scripted_app import scripted_app
from tests.support.tiny_llama import byte_llama

CHART = DEPLOY / "jax-engine"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
FILES = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return byte_llama(tmp_path_factory.mktemp("models") / "bytes")


def in_file(path: Path) -> list[Object]:
    return objects(path.read_text("utf-8"))


def entry_point() -> list[str]:
    """The command of the image."""
    (found,) = re.findall(r"^ENTRYPOINT (\[.*\])$", CONTAINERFILE, re.M)
    return list(json.loads(found))


def test_there_are_manifests_for_each_kind_of_device() -> None:
    assert [path.name for path in MANIFESTS] == ["cpu.yaml", "cuda.yaml", "leaderworkerset.yaml"]


@FILES
def test_names_and_sums_agree(path: Path) -> None:
    check_consistent(in_file(path))


def test_what_does_not_agree_is_noticed() -> None:
    found = in_file(MANIFESTS[0])
    for spoil in (
        lambda own: own["resources"]["requests"].update(cpu=8),
        lambda own: own["ports"].clear(),
        lambda own: own["volumeMounts"].append({"name": "other", "mountPath": "/x"}),
        lambda own: own["args"].__setitem__(-1, "--shutdown-timeout=60"),
    ):
        wrong = copy.deepcopy(found)
        spoil(pod_template(wrong)["spec"]["containers"][0])
        with pytest.raises(AssertionError):
            check_consistent(wrong)


@FILES
def test_the_server_takes_the_flags(path: Path) -> None:
    words = [one.replace("$(POD_IP)", "10.0.0.1") for one in container(in_file(path))["args"]]
    command, *rest = entry_point()
    assert command == "jax-engine"
    args = make_parser().parse_args([*rest, *words])
    check(args)
    assert args.host == "0.0.0.0"
    assert args.port == container(in_file(path))["ports"][0]["containerPort"]
    config = EngineArgs.from_cli_args(args).create_engine_config()
    assert isinstance(config, EngineConfig)


@FILES
def test_events_name_the_pod_and_have_a_port(path: Path) -> None:
    own = container(in_file(path))
    given = [one for one in own["args"] if one.startswith("--kv-events-config=")]
    assert bool(given) == (path.name == "leaderworkerset.yaml")
    for one in given:
        events = json.loads(one.partition("=")[2])
        port = int(events["endpoint"].rpartition(":")[2])
        assert {"name": "kv-events", "containerPort": port} in own["ports"]
        assert events["topic"] == f"kv@$(POD_IP):8000@{own['args'][0]}"
        variables = [variable["name"] for variable in own["env"]]
        assert {"POD_IP", "PYTHONHASHSEED"} <= set(variables)


@FILES
def test_probes_ask_for_what_the_server_has(path: Path, checkpoint: Path) -> None:
    own = container(in_file(path))
    client, _ = scripted_app(checkpoint)({"api_keys": ("k",)})
    for probe in PROBES:
        assert client.get(own[probe]["httpGet"]["path"]).status_code == 200  # without the key
    start = own["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 1800


@FILES
def test_the_monitor_and_the_scale_read_the_metrics(path: Path, checkpoint: Path) -> None:
    client, _ = scripted_app(checkpoint)()
    for one in in_file(path):
        if one["kind"] == "ServiceMonitor":
            assert client.get(one["spec"]["endpoints"][0]["path"]).status_code == 200
        if one["kind"] == "HorizontalPodAutoscaler":
            (metric,) = one["spec"]["metrics"]
            # The adapter writes vllm_ for vllm:, since a name of the metrics API has no colon.
            assert metric["pods"]["metric"]["name"].removeprefix("vllm_") in GAUGES


@FILES
def test_pods_may_do_no_more_than_they_must(path: Path) -> None:
    spec, own = pod_template(in_file(path))["spec"], container(in_file(path))
    assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@FILES
def test_users_and_folders_are_those_of_the_image(path: Path) -> None:
    spec, own = pod_template(in_file(path))["spec"], container(in_file(path))
    (user, group) = re.findall(r"^USER (\d+):(\d+)$", CONTAINERFILE, re.M)[0]
    context = spec["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (int(user), int(group))
    assert f"--uid {user} --gid {group}" in CONTAINERFILE
    mounts = {one["name"]: one["mountPath"] for one in own["volumeMounts"]}
    assert mounts == {"cache": "/cache", "tmp": "/tmp", "shm": "/dev/shm"}
    assert f"XDG_CACHE_HOME={mounts['cache']} " in CONTAINERFILE


def test_all_caches_are_below_the_volume() -> None:
    """In a process without a home whose only hint is the image's variable."""
    program = (
        "from jax_engine.models.checkpoints.cache_dir import cache_dir, hub_dir, kernels_dir\n"
        "from huggingface_hub.constants import HF_HUB_CACHE\n"
        "print(cache_dir(), kernels_dir(), hub_dir(), HF_HUB_CACHE)"
    )
    given = {"XDG_CACHE_HOME": "/cache", "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=given, capture_output=True, text=True, timeout=HANG_S
    )
    folders = done.stdout.split()
    assert len(folders) == 4 and all(one.startswith("/cache/") for one in folders), done.stderr
    assert folders[2] == folders[3]


def test_variables_of_secrets_are_read_by_the_server() -> None:
    helpers = (CHART / "templates" / "_pod.tpl").read_text("utf-8")
    named = set(re.findall(r"^- name: ([A-Z_]+)$", helpers, re.M))
    assert named == {"NPROC", "POD_IP", "PYTHONHASHSEED", "HF_TOKEN", "VLLM_API_KEY"}
    assert "VLLM_API_KEY" in KEY_VARIABLES
    program = "from huggingface_hub import get_token; print(get_token())"
    given = {"HF_TOKEN": "hf_x", "HOME": "/nonexistent"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=HANG_S)
    assert done.stdout == "hf_x\n", done.stderr


@pytest.mark.slow
def test_xla_starts_no_more_threads_than_it_is_told() -> None:
    """NPROC, which the chart sets to the container's limit of cores."""
    program = (
        "import os, jax, jax.numpy as jnp; jnp.ones(3).sum().block_until_ready()\n"
        "tasks = '/proc/self/task'\n"
        "names = [open(f'{tasks}/{one}/comm').read() for one in os.listdir(tasks)]\n"
        "print(sum('XLA' in one or 'Eigen' in one for one in names))"
    )
    counts = []
    for cores in ("1", "5"):
        given = {"NPROC": cores, "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=HANG_S)
        counts.append(int(done.stdout))
    assert counts[0] < counts[1], counts


@FILES
def test_custom_resources_have_their_schema(path: Path) -> None:
    for one in in_file(path):
        schema = own_schema(one["kind"])
        if schema is not None:
            jsonschema.Draft202012Validator(schema).validate(one)
        else:
            assert "." not in one["apiVersion"].partition("/")[0] or "k8s.io" in one["apiVersion"]


def test_an_engine_is_on_one_node() -> None:
    """So groups have one pod; what vLLM starts on other nodes is refused."""
    found = of_kind(in_file(DEPLOY / "kubernetes" / "leaderworkerset.yaml"), "LeaderWorkerSet")
    assert found["spec"]["leaderWorkerTemplate"]["size"] == 1
    args = make_parser().parse_args(["serve", "--nnodes=2"])
    with pytest.raises(ConfigError, match="nnodes"):
        EngineArgs.from_cli_args(args).create_engine_config()


def test_the_chart_has_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == chart["version"] == project["version"]
    for path in MANIFESTS:
        image = container(in_file(path))["image"]
        assert image.partition(":")[2].removesuffix("-cuda") == project["version"]
        gpus = "nvidia.com/gpu" in container(in_file(path))["resources"]["limits"]
        assert image.endswith("-cuda") == gpus


def test_values_and_their_schema_name_the_same() -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)

    def names(values: object, schema: object, place: str = "") -> None:
        if isinstance(values, dict) and isinstance(schema, dict) and "properties" in schema:
            own = set(schema["properties"]) - ({"global"} if not place else set())
            missing = own - set(values) - {"initialDelaySeconds"}
            assert missing == set() and set(values) <= own, place
            for name, value in values.items():
                names(value, schema["properties"][name], f"{place}.{name}")

    names(VALUES, SCHEMA)
    for path in CHART.glob("values*.yaml"):
        jsonschema.validate(yaml.safe_load(path.read_text("utf-8")), SCHEMA)


def test_commands_of_the_page_name_what_there_is() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text("utf-8")
    blocks = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)).replace("\\\n", "")
    lines = [shlex.split(line) for line in blocks.splitlines()]
    assert {line[0] for line in lines} == {"docker", "kubectl", "helm"}
    words = [word for line in lines for word in line]
    named = [word for word in words if word.startswith("deploy/")]
    assert named and all((ROOT / name).exists() for name in named)
    given = [words[i + 1] for i, word in enumerate(words) if word == "--build-arg"]
    assert {one.partition("=")[0] for one in given} == {"EXTRAS"} and "ARG EXTRAS" in CONTAINERFILE
    values = [words[i + 1] for i, word in enumerate(words) if word in ("--set", "--set-json")]
    named = re.findall(r"`([A-Za-z]+\.[A-Za-z]+)`", page)
    values += [name for name in named if not name.endswith(".txt")]
    for path in values:
        found: object = VALUES
        for name in path.partition("=")[0].partition(":")[0].split("."):
            assert isinstance(found, dict)
            found = found.get(name) if name != "cpu" else "cpu"
            assert found is not None, path
    for block in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S):
        if "rules:" not in block:
            jsonschema.validate(yaml.safe_load(block), SCHEMA)
