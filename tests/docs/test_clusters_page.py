"""The examples for Kubernetes and YARN: objects, settings, configuration of their sessions."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from doc_pages import ROOT, blocks, text_of

from shared.settings.loading import ENV, load_settings
from shared.spark import s3a
from shared.spark.conf import SparkSettings, session_conf
from shared.spark.packages import LAKES, with_needs
from shared.spark.spark_release import installed
from tap_spark.config import PROGRAM as TAP
from tap_spark.config import tap_config
from target_spark.config import PROGRAM as TARGET
from target_spark.config import REGISTRY, target_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = ROOT / "docs" / "clusters.md"
SAMPLES = ROOT / "sample_configs"
MANIFEST = SAMPLES / "kubernetes" / "orders.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(MANIFEST.read_text()))
BY_KIND = {item["kind"]: item for item in OBJECTS}
CONFIG_MAP = BY_KIND["ConfigMap"]["data"]
POD = BY_KIND["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]
[CONTAINER] = POD["spec"]["containers"]
SETTINGS = {
    (kind, program): json.loads(text)
    for program in ("tap", "target")
    for kind, text in (
        ("kubernetes", CONFIG_MAP[f"{program}.json"]),
        ("yarn", (SAMPLES / "yarn" / f"{program}.json").read_text()),
    )
}
EVERY = pytest.mark.parametrize(("kind", "program"), SETTINGS, ids="-".join)
MODEL = "io.fabric8.kubernetes.api.model"
GROUPS = {"v1": "", "rbac.authorization.k8s.io/v1": ".rbac", "batch/v1": ".batch.v1"}
# What the API server asks for beside the names of fields.
REQUIRED = {
    "ServiceAccount": (),
    "Role": ("rules",),
    "RoleBinding": ("roleRef.apiGroup", "roleRef.kind", "roleRef.name", "subjects"),
    "Service": ("spec.ports", "spec.selector"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.resources.requests.storage"),
    "ConfigMap": ("data",),
    "CronJob": ("spec.schedule", "spec.jobTemplate.spec.template.spec.containers"),
}
# Keys that end in a name of the user's, with the constant of Spark that says so, if there is one.
PREFIXES = {
    "spark.kubernetes.executor.node.selector.": "KUBERNETES_EXECUTOR_NODE_SELECTOR_PREFIX",
    "spark.kubernetes.executor.secretKeyRef.": "KUBERNETES_EXECUTOR_SECRET_KEY_REF_PREFIX",
    "spark.kubernetes.executor.volumes.": "KUBERNETES_EXECUTOR_VOLUMES_PREFIX",
    "spark.executorEnv.": None,
    "spark.sql.catalog.": None,
    "spark.hadoop.": None,
}
# Ours.
SETTING_NAMES = {f"spark.{field.name}" for field in dataclasses.fields(SparkSettings)}


def spark_settings(kind: str, program: str) -> SparkSettings:
    """Return the settings of a program's session, with the needs of its formats."""
    if program == "tap":
        return tap_config(SETTINGS[kind, program]).spark
    config = target_config(SETTINGS[kind, program])
    return with_needs(config.spark, REGISTRY.get(config.format).needs)


@EVERY
def test_sessions_get_what_is_written(kind: str, program: str) -> None:
    """Beside defaults and the needs of formats, which nobody changes by accident."""
    written = SETTINGS[kind, program]["spark"]
    actual = session_conf(spark_settings(kind, program))
    packages = set(written.get("packages", ()))
    needed = {"org.postgresql:postgresql:42.7.14"}
    defaults = SparkSettings(master=written["master"], app_name=written["app_name"])
    expected = {**session_conf(defaults), **written["conf"]}
    if program == "target":
        lake = LAKES[SETTINGS[kind, program]["format"]]
        needed = {installed().packages[lake.package]}
        expected |= {**lake.conf, "spark.sql.extensions": lake.extensions}
        assert packages == {s3a.PACKAGE}
    assert set(actual.pop("spark.jars.packages").split(",")) == packages | needed
    assert actual == expected


@EVERY
def test_executors_see_what_the_target_stages(kind: str, program: str) -> None:
    settings = SETTINGS[kind, program]
    places = [settings["batch_config"].get("storage", {}).get("root", "s3://")]
    places += [settings[name] for name in ("path",) if name in settings]
    places += [settings["staging"]["root"]] if "staging" in settings else []
    assert all(place.startswith("s3://") for place in places)
    assert len(places) == {"tap": 1, "target": 3}[program]


def keys_of(kind: str) -> set[str]:
    return {
        key
        for (of, _), settings in SETTINGS.items()
        for key in settings["spark"]["conf"]
        if of == kind
    }


@pytest.mark.spark
def test_spark_knows_every_key(spark: SparkSession) -> None:
    """Of the examples, and of the page's text."""
    java: Any = spark._jvm  # type: ignore[attr-defined]
    for name in ("internal.config.package$", "internal.config.Python$", "internal.config.Network$",
                 "deploy.k8s.Config$", "deploy.yarn.config.package$"):  # fmt: skip
        java.java.lang.Class.forName(f"org.apache.spark.{name}")
    entries = java.org.apache.spark.internal.config.ConfigEntry
    kubernetes = getattr(getattr(java.org.apache.spark.deploy.k8s, "Config$"), "MODULE$")
    for prefix, constant in PREFIXES.items():
        assert constant is None or getattr(kubernetes, constant)() == prefix
    text = text_of(PAGE)
    named = set(re.findall(r"(?<![\w/.-])spark(?:\.\w[\w-]*)+(?!\.\w|/|\w)", text)) - SETTING_NAMES
    named = {name for name in named if not name.endswith((".sh", ".json", ".md"))}
    assert len(named) > 15
    for key in named | keys_of("kubernetes") | keys_of("yarn"):
        existing = entries.findEntry(key) is not None
        assert existing or f"{key}.".startswith(tuple(PREFIXES)), key
    assert entries.findEntry("spark.kubernetes.no.such.key") is None


@pytest.mark.spark
@pytest.mark.parametrize("item", OBJECTS, ids=lambda item: item["kind"])
def test_objects_are_those_of_kubernetes(spark: SparkSession, item: dict[str, Any]) -> None:
    """By the model of the client that Spark uses: names of all fields, and their types."""
    java: Any = spark._jvm  # type: ignore[attr-defined]
    assert item["metadata"].keys() == {"name", "namespace"}
    name = f"{MODEL}{GROUPS[item['apiVersion']]}.{item['kind']}"
    kind = java.java.lang.Class.forName(name)
    unknown = list(unknown_fields(item, kind))
    assert unknown == []
    java.io.fabric8.kubernetes.client.utils.Serialization.unmarshal(json.dumps(item), kind)
    for path in REQUIRED[item["kind"]]:
        value: Any = item
        for part in path.split("."):
            value = value[part]
        assert value


def unknown_fields(value: Any, kind: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of fields that a class of the client lacks."""
    if isinstance(value, list):
        for part in value:
            yield from unknown_fields(part, kind, path)
    if not isinstance(value, Mapping) or not kind.getName().startswith(MODEL):
        return
    if kind.getSimpleName() in {"Quantity", "IntOrString"}:
        return
    getters = {method.getName(): method for method in kind.getMethods()}
    for key, below in value.items():
        getter = getters.get(f"get{key[0].upper()}{key[1:]}")
        if getter is None:
            yield f"{path}.{key}"
            continue
        generic = getter.getGenericReturnType()
        if generic.toString().startswith("java.util.List<"):
            yield from unknown_fields(below, generic.getActualTypeArguments()[0], f"{path}.{key}")
        elif isinstance(below, Mapping):
            yield from unknown_fields(below, getter.getReturnType(), f"{path}.{key}")


@pytest.mark.spark
def test_wrong_fields_are_found(spark: SparkSession) -> None:
    java: Any = spark._jvm  # type: ignore[attr-defined]
    kind = java.java.lang.Class.forName(f"{MODEL}.Service")
    wrong = {"spec": {"clusterIp": "None", "ports": [{"port": 1, "portt": 2}]}, "metadat": {}}
    assert set(unknown_fields(wrong, kind)) == {".spec.clusterIp", ".spec.ports.portt", ".metadat"}


def test_names_fit_together() -> None:
    namespace = {item["metadata"]["namespace"] for item in OBJECTS}
    assert namespace == {"singer"}
    account = BY_KIND["ServiceAccount"]["metadata"]["name"]
    binding = BY_KIND["RoleBinding"]
    assert binding["roleRef"]["name"] == BY_KIND["Role"]["metadata"]["name"]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": account, "namespace": "singer"}
    ]
    assert POD["spec"]["serviceAccountName"] == account
    service = BY_KIND["Service"]
    assert service["spec"]["selector"].items() <= POD["metadata"]["labels"].items()
    ports = {str(port["port"]) for port in service["spec"]["ports"]}
    used = []
    for program in ("tap", "target"):
        conf = SETTINGS["kubernetes", program]["spark"]["conf"]
        assert conf["spark.driver.host"] == f"{service['metadata']['name']}.singer.svc"
        assert conf["spark.kubernetes.namespace"] == "singer"
        used += [conf["spark.driver.port"], conf["spark.driver.blockManager.port"]]
    assert sorted(used) == sorted(ports)
    volumes = {volume["name"] for volume in POD["spec"]["volumes"]}
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes
    by_name = {volume["name"]: volume for volume in POD["spec"]["volumes"]}
    assert by_name["config"]["configMap"]["name"] == BY_KIND["ConfigMap"]["metadata"]["name"]
    claim = by_name["state"]["persistentVolumeClaim"]["claimName"]
    assert claim == BY_KIND["PersistentVolumeClaim"]["metadata"]["name"]
    verbs = BY_KIND["Role"]["rules"][0]["verbs"]
    assert {"create", "get", "list", "watch", "delete"} <= set(verbs)


def test_secrets_are_made_as_the_page_says() -> None:
    [line] = [line for line in text_of(PAGE).splitlines() if "create secret" in line]
    created = set(re.findall(r"--from-literal=([\w-]+)=", line))
    wanted = {
        item["valueFrom"]["secretKeyRef"]["key"]
        for item in CONTAINER["env"]
        if "secretKeyRef" in item.get("valueFrom", {})
    }
    assert wanted == created
    for settings in SETTINGS.values():
        conf = settings["spark"]["conf"]
        named = [value for key, value in conf.items() if ".secretKeyRef." in key]
        assert {value.partition(":")[2] for value in named} <= created
    variables = {item["name"] for item in CONTAINER["env"]}
    [connection] = SETTINGS["kubernetes", "tap"]["connections"]
    assert connection["password_variable"] in variables


@pytest.mark.parametrize("program", ["tap", "target"])
def test_the_name_of_the_pod_joins_the_settings(program: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(CONFIG_MAP[f"{program}.json"])
    environ = {
        item["name"]: item["value"].replace("$(POD_NAME)", "orders-1")
        for item in CONTAINER["env"]
        if "value" in item
    }
    of = {"tap": TAP, "target": TARGET}[program]
    sources = [str(tmp_path / "config.json"), ENV]
    actual = load_settings(of.schema, sources, of.env_prefix, environ, tmp_path / "none")
    written = SETTINGS["kubernetes", program]["spark"]["conf"]
    assert actual["spark"]["conf"] == {**written, "spark.kubernetes.driver.pod.name": "orders-1"}


def test_images_are_those_that_the_page_builds() -> None:
    built = dict(
        re.findall(r"^docker build(?: --target (?P<target>\w+))? -t (\S+) \.$", text_of(PAGE), re.M)
    )
    assert built[""] == CONTAINER["image"]
    for program in ("tap", "target"):
        conf = SETTINGS["kubernetes", program]["spark"]["conf"]
        assert conf["spark.kubernetes.container.image"] == built["executor"]
    user = POD["spec"]["securityContext"]["runAsUser"]
    assert f"USER {user}\n" in (ROOT / "Dockerfile").read_text()


def test_the_page_quotes_the_files() -> None:
    manifest = MANIFEST.read_text()
    quoted = [block.text for block in blocks("yaml") if block.page == PAGE]
    assert quoted
    assert all(text in manifest for text in quoted)
    settings = [json.loads(block.text) for block in blocks("json") if block.page == PAGE]
    conf = [whole["spark"]["conf"] for whole in settings if "remote" not in whole["spark"]]
    target = SETTINGS["kubernetes", "target"]["spark"]["conf"]
    assert any(part.items() <= target.items() for part in conf)


YARN_SCRIPT = (SAMPLES / "yarn" / "run.sh").read_text()


def test_both_scripts_are_one() -> None:
    """But for the folders."""
    kubernetes = CONFIG_MAP["run.sh"].replace("/config/", "").replace(" --config ENV", "")
    begin = "tap-spark"
    assert kubernetes[kubernetes.index(begin) :] == YARN_SCRIPT[YARN_SCRIPT.index(begin) :]
    subprocess.run(["bash", "-n"], input=YARN_SCRIPT.encode(), check=True)


@pytest.mark.pipe
def test_the_script_keeps_the_state(tmp_path: Path) -> None:
    """As it stands, with settings for this machine."""
    (tmp_path / "orders.csv").write_text("id\n1\n")
    stream = {"name": "o", "format": "csv", "path": "orders.csv"}
    (tmp_path / "tap.json").write_text(json.dumps({"streams": [stream]}))
    (tmp_path / "target.json").write_text(json.dumps({"path": "out"}))
    script = re.sub(r"/(config|state)\b(?!\.)", str(tmp_path), CONFIG_MAP["run.sh"])
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert "o" in json.loads((tmp_path / "state.json").read_text())["bookmarks"]
    assert list((tmp_path / "out" / "o").glob("*.parquet"))
