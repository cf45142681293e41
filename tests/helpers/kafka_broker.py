"""A Kafka broker of the tests' own, in KRaft mode and on loopback, and what is sent to it.

Its jars come from Maven by the resolver of Spark, its Java is that of the session.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from certificates import certificates
from py4j.protocol import Py4JJavaError

from shared.spark.packages import only_resolver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "ivy://org.apache.kafka:kafka_2.13:3.9.1?transitive=true"
CLUSTER = "c2luZ2VyLXNwYXJrLTEwMQ"
WAIT_SECONDS = 60.0
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    # Messages of tests may be older than a week, after which a broker removes them.
    "log.retention.ms": "-1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
# A broker that does not know a new partition yet refuses the first request, not the next one.
IN_ORDER = {"max.in.flight.requests.per.connection": "1"}
USER, PASSWORD = "reader", "tests-own-Secret-7"
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="{USER}" password="{PASSWORD}"'
)
Message = tuple[Any, Any]
"""Key and value: bytes, text, a value to send as JSON, or None for neither."""


class KafkaBroker:
    """A running broker.

    Args:
        spark: The session, whose Java resolves the broker's jars and sends messages.

    Raises:
        RuntimeError: The jars cannot be resolved.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm  # type: ignore[attr-defined]
        self._gateway: Any = spark.sparkContext._gateway
        self._kafka = self._java.org.apache.kafka
        self._folder = Path(tempfile.mkdtemp(prefix="tap-spark-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        ports = _free_ports(3)
        self.servers, controller, secured = (f"127.0.0.1:{port}" for port in ports)
        # The name in the certificate.
        self.secured = f"localhost:{ports[2]}"
        files = certificates(self._folder / "tls")
        self.authority, self.other_authority = (
            (files / name).read_text() for name in ("ca.pem", "other.pem")
        )
        (files / "keystore.pem").write_text(
            "".join((files / name).read_text() for name in ("server.key", "server.pem"))
        )
        listeners = f"PLAINTEXT://{self.servers},CONTROLLER://{controller},SASL://{secured}"
        self._settings = {
            **SETTINGS,
            "listeners": listeners,
            "advertised.listeners": f"PLAINTEXT://{self.servers},SASL://{self.secured}",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": str(self._folder / "data"),
            "listener.name.sasl.ssl.keystore.type": "PEM",
            "listener.name.sasl.ssl.keystore.location": str(files / "keystore.pem"),
            "listener.name.sasl.plain.sasl.jaas.config": f'{LOGIN} user_{USER}="{PASSWORD}";',
        }
        self._jars = self._resolved()
        self._admin: Any = None
        self._producer: Any = None

    def start(self) -> None:
        settings = self._folder / "server.properties"
        settings.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        java = f"{self._java.System.getProperty('java.home')}/bin/java"
        command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", ":".join(self._jars)]
        tool = [*command, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
        done = subprocess.run(tool, capture_output=True, text=True, cwd=self._folder)
        assert done.returncode == 0, done.stdout + done.stderr
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "kafka.Kafka", str(settings)], stdout=log, stderr=log, cwd=self._folder
            )
        self._wait()
        self._admin = self._kafka.clients.admin.Admin.create(self._properties())
        self._producer = self._new_producer({})

    def stop(self) -> None:
        """End the broker by its own process id and remove what it wrote."""
        for client in (self._producer, self._admin):
            if client is not None:
                client.close(self._java.java.time.Duration.ofSeconds(5))
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def topic(self, partitions: int = 1, **config: str) -> str:
        """Create a topic with a new name.

        Args:
            partitions: How many.
            config: Its configuration, with underscores for dots.
        """
        name = f"shop.topic-{next(self._numbers)}"
        self.create(name, partitions, **config)
        return name

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        factor = self._java.java.util.Optional.empty()
        count = self._java.java.util.Optional.of(partitions)
        new = self._kafka.clients.admin.NewTopic(name, count, factor)
        created = self._java.java.util.HashMap()
        for key, value in config.items():
            created.put(key.replace("_", "."), value)
        new.configs(created)
        self._admin.createTopics(self._java.java.util.List.of(new)).all().get()
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            if name in list(self._admin.listTopics().names().get()):
                return
            time.sleep(0.02)

    def delete(self, name: str) -> None:
        self._admin.deleteTopics(self._java.java.util.List.of(name)).all().get()
        end = time.monotonic() + WAIT_SECONDS
        while name in list(self._admin.listTopics().names().get()) and time.monotonic() < end:
            time.sleep(0.02)

    def add_partitions(self, name: str, total: int) -> None:
        new = self._java.java.util.HashMap()
        new.put(name, self._kafka.clients.admin.NewPartitions.increaseTo(total))
        self._admin.createPartitions(new).all().get()
        end = time.monotonic() + WAIT_SECONDS
        names = self._java.java.util.List.of(name)
        while time.monotonic() < end:
            actual = self._admin.describeTopics(names).allTopicNames().get()[name]
            if len(actual.partitions()) == total:
                return
            time.sleep(0.02)

    def expire(self, name: str, before: Mapping[int, int]) -> None:
        """Remove the messages before an offset of each partition, as retention does."""
        asked = self._java.java.util.HashMap()
        for partition, offset in before.items():
            place = self._kafka.common.TopicPartition(name, partition)
            asked.put(place, self._before(offset))
        self._admin.deleteRecords(asked).all().get()

    def send(
        self,
        topic: str,
        messages: Iterable[Message],
        partition: int = 0,
        *,
        at: int | None = None,
        producer: Any = None,
    ) -> None:
        """Send messages to a partition; they are durable, and in this order, when it returns.

        Args:
            topic: The topic.
            messages: Keys and values.
            partition: Its number.
            at: Their time, in milliseconds; now if None.
            producer: Of a transaction.

        Raises:
            Py4JJavaError: The broker refused a message.
        """
        record = self._kafka.clients.producer.ProducerRecord
        producer = producer or self._producer
        when = () if at is None else (at,)
        sent = [
            producer.send(record(topic, partition, *when, _bytes(key), _bytes(value)))
            for key, value in messages
        ]
        producer.flush()
        for each in sent:
            each.get()

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Yield a producer within a transaction: commit at the end, abort after an exception."""
        producer = self._new_producer({"transactional.id": f"tests-{next(self._numbers)}"})
        producer.initTransactions()
        producer.beginTransaction()
        try:
            yield producer
            producer.commitTransaction()
        except ArithmeticError:
            producer.abortTransaction()
        finally:
            producer.close(self._java.java.time.Duration.ofSeconds(5))

    def connection(self, **changes: Any) -> dict[str, Any]:
        """Return an item of the setting `connections`."""
        return {"name": "events", "brokers": self.servers, **changes}

    def _before(self, offset: int) -> Any:
        """Return `RecordsToDelete.beforeOffset(offset)`, which py4j takes for its field."""
        loader = self._java.Thread.currentThread().getContextClassLoader()
        name = "org.apache.kafka.clients.admin.RecordsToDelete"
        kind = self._java.java.lang.Class.forName(name, True, loader)
        (method,) = (
            each
            for each in kind.getMethods()
            if each.getName() == "beforeOffset" and each.getParameterCount() == 1
        )
        supplied = self._gateway.new_array(self._java.Object, 1)
        supplied[0] = offset
        return method.invoke(None, supplied)

    def _new_producer(self, options: Mapping[str, str]) -> Any:
        supplied = self._properties()
        kind = "org.apache.kafka.common.serialization.ByteArraySerializer"
        fixed = {"key.serializer": kind, "value.serializer": kind, **IN_ORDER}
        for name, value in {**fixed, **options}.items():
            supplied.setProperty(name, value)
        return self._kafka.clients.producer.KafkaProducer(supplied)

    def _properties(self) -> Any:
        supplied = self._java.java.util.Properties()
        supplied.setProperty("bootstrap.servers", self.servers)
        return supplied

    def _resolved(self) -> Sequence[str]:
        """Return the broker's jars; Scala's library is Spark's, which the resolver leaves out."""
        uri = self._java.java.net.URI(PACKAGE)
        try:
            with only_resolver({}):
                utils = self._java.org.apache.spark.util.DependencyUtils
                actual = utils.resolveMavenDependencies(uri)
        except Py4JJavaError as error:
            raise RuntimeError(f"the broker's jars cannot be resolved: {error}") from error
        spark = Path(pyspark.__file__).parent / "jars"
        return [*(actual.apply(n) for n in range(actual.size())), *map(str, spark.glob("scala-l*"))]

    def _wait(self) -> None:
        end = time.monotonic() + WAIT_SECONDS
        host, port = self.servers.split(":")
        while time.monotonic() < end:
            assert self._process is not None
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError((self._folder / "log").read_text())


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
