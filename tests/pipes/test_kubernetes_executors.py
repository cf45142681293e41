"""The example for Kubernetes: Spark's scheduler starts executors by the entrypoint of the image.

The API server is a stand-in that runs pods as processes; driver and executors are real.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from kubernetes_api import ADDRESS, KubernetesApi
from pipe_programs import TARGET, Programs

pytestmark = [pytest.mark.pipe, pytest.mark.costly]
MANIFEST = Path(__file__).resolve().parents[2] / "sample_configs" / "kubernetes" / "orders.yaml"
POD = "orders-1"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[KubernetesApi]:
    (tmp_path / "nodes").mkdir()
    secrets = {"s3-key": "key-of-s3", "s3-secret": "secret-of-s3"}
    api = KubernetesApi(tmp_path / "nodes", secrets=secrets)
    meta = {"name": POD, "namespace": "singer", "uid": "of-the-driver"}
    api.pods[POD] = {"kind": "Pod", "apiVersion": "v1", "metadata": meta, "spec": {}}
    yield api
    api.close()


def free_ports() -> list[str]:
    with socket.socket() as one, socket.socket() as other:
        for probe in (one, other):
            probe.bind((ADDRESS, 0))
        return [str(probe.getsockname()[1]) for probe in (one, other)]


def test_executors_load(api: KubernetesApi, programs: Programs, tmp_path: Path) -> None:
    """With dynamic allocation, a secret between them, and the pod of the driver as their owner."""
    items = {item["kind"]: item for item in yaml.safe_load_all(MANIFEST.read_text())}
    example = json.loads(items["ConfigMap"]["data"]["target.json"])
    driver, blocks = free_ports()
    conf = {
        **example["spark"]["conf"],
        "spark.driver.host": ADDRESS,
        "spark.driver.bindAddress": ADDRESS,
        "spark.driver.port": driver,
        "spark.driver.blockManager.port": blocks,
        "spark.driver.memory": "700m",
        "spark.executor.memory": "600m",
    }
    config = {
        **example,
        "format": "parquet",
        "path": str(tmp_path / "out"),
        "load_method": "append-only",
        "engine": "spark",
        "staging": {"root": str(tmp_path / "staging")},
        "batch_config": {},
        "spark": {**example["spark"], "master": f"k8s://{api.url}", "packages": [], "conf": conf},
    }
    programs.environ["TARGET_SPARK_SPARK__CONF"] = json.dumps(
        {"spark.kubernetes.driver.pod.name": POD}
    )
    messages: list[dict[str, Any]] = [
        {"type": "SCHEMA", "stream": "s", "schema": {"properties": {"id": {"type": "integer"}}},
         "key_properties": []},
        *({"type": "RECORD", "stream": "s", "record": {"id": number}} for number in range(9)),
        {"type": "STATE", "value": {"bookmark": 9}},
    ]  # fmt: skip
    supplied = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
    command = [*TARGET, "--config", programs.write("target", config), "--config", "ENV"]
    done = programs.run(command, supplied)
    logs = "".join(log.read_text() for log in api.folder.glob("*.log"))
    assert done.returncode == 0, done.stderr.decode() + logs
    assert json.loads(done.stdout) == {"bookmark": 9}
    parts = [pq.read_table(part) for part in tmp_path.glob("out/s/*.parquet")]
    assert sorted(pa.concat_tables(parts).column("id").to_pylist()) == list(range(9))
    pods = [item for item in api.started if item["kind"] == "Pod"]
    for pod in pods:
        [container] = pod["spec"]["containers"]
        assert container["image"] == conf["spark.kubernetes.container.image"]
        assert container["args"] == ["executor"]
        assert [owner["name"] for owner in pod["metadata"]["ownerReferences"]] == [POD]
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert "/var/spark" in mounts
        variables = {variable["name"]: variable for variable in container["env"]}
        assert variables["AWS_ACCESS_KEY_ID"]["valueFrom"]["secretKeyRef"]["name"] == "orders"
        # Nothing secret is in the object itself.
        assert "key-of-s3" not in json.dumps(pod)
    assert pods
    assert "Finished task" in logs
    assert set(api.pods) == {POD}  # the program removes its executors
