"""What the brokers of Kafka tell of topics, asked by Kafka's own client in the driver's Java."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from shared.errors import SourceError, may_pass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ISOLATION = "isolation.level"
TIMEOUT_MS = 30_000
_TIMES = ("default.api.timeout.ms", "request.timeout.ms")
_SECRET = re.compile(r"password|jaas|secret|token|key", re.IGNORECASE)
_REASONS: Mapping[str, str] = {
    "TimeoutException": "the brokers do not answer; check 'brokers', and the network",
    "UnknownTopicOrPartitionException": "the topic does not exist; check 'topic'",
    "InvalidTopicException": "the topic's name is invalid; check 'topic'",
    "TopicAuthorizationException": "the user may not read the topic; it needs READ and DESCRIBE",
    "SaslAuthenticationException": "the login was rejected; check the connection's 'options'",
    "SslAuthenticationException": "TLS was refused; check the connection's 'options'",
}


class KafkaAdmin(AbstractContextManager["KafkaAdmin"]):
    """A client of a cluster. Every method raises SourceError if the brokers refuse or fail.

    Args:
        options: Kafka's own options: `bootstrap.servers`, and what security needs.
    """

    def __init__(self, java: Any, options: Mapping[str, str]) -> None:
        self._java = java
        self._secrets = [value for name, value in options.items() if _SECRET.search(name)]
        self._kafka = java.org.apache.kafka
        properties = java.java.util.Properties()
        for name, value in {**dict.fromkeys(_TIMES, str(TIMEOUT_MS)), **options}.items():
            properties.setProperty(name, value)
        committed = options.get(ISOLATION, "read_committed").lower() == "read_committed"
        levels = self._kafka.common.IsolationLevel
        self._isolation = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        with self._explained():
            self._admin = self._kafka.clients.admin.Admin.create(properties)

    def topics(self) -> list[str]:
        """List the topics that are not the cluster's own."""
        with self._explained():
            return sorted(map(str, self._admin.listTopics().names().get()))

    def describe(self, topic: str) -> tuple[str, list[int]]:
        """Return the id of a topic, and its partitions."""
        with self._explained(topic):
            asked = self._admin.describeTopics(self._java.java.util.List.of(topic))
            description = asked.topicNameValues().get(topic).get()
        return str(description.topicId().toString()), sorted(
            p.partition() for p in description.partitions()
        )

    def first(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the first offset of each partition that is still there."""
        return self._offsets(topic, partitions, self._kafka.clients.admin.OffsetSpec.earliest())

    def end(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return the offset after each partition's last message that may be read."""
        return self._offsets(topic, partitions, self._kafka.clients.admin.OffsetSpec.latest())

    def at(self, topic: str, partitions: Iterable[int], millis: int) -> dict[int, int | None]:
        """Return each partition's first offset at or after a moment; None if there is none."""
        spec = self._kafka.clients.admin.OffsetSpec.forTimestamp(millis)
        offsets = self._offsets(topic, partitions, spec)
        return {partition: offset if offset >= 0 else None for partition, offset in offsets.items()}

    def is_gapless(self, topic: str, partitions: Iterable[int]) -> bool:
        """Return whether every offset surely holds a message; False if the brokers do not say.

        Compaction removes messages, and transactions take offsets for their own marks.
        """
        try:
            return not self._is_compacted(topic) and not self._is_transactional(topic, partitions)
        except Exception:  # asking needs more rights than reading does
            return False

    def close(self) -> None:
        """Close the client; never fails."""
        with suppress(Exception):
            self._admin.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_compacted(self, topic: str) -> bool:
        kinds = self._kafka.common.config.ConfigResource
        resource = kinds(kinds.Type.TOPIC, topic)
        asked = self._admin.describeConfigs(self._java.java.util.List.of(resource))
        return "compact" in str(asked.values().get(resource).get().get("cleanup.policy").value())

    def _is_transactional(self, topic: str, partitions: Iterable[int]) -> bool:
        asked = self._java.java.util.ArrayList()
        for partition in partitions:
            asked.add(self._kafka.common.TopicPartition(topic, partition))
        described = self._admin.describeProducers(asked).all().get()
        producers = (one for each in asked for one in described[each].activeProducers())
        return any(one.coordinatorEpoch().isPresent() for one in producers)

    def _offsets(self, topic: str, partitions: Iterable[int], spec: Any) -> dict[int, int]:
        asked = self._java.java.util.HashMap()
        for partition in partitions:
            asked.put(self._kafka.common.TopicPartition(topic, partition), spec)
        how = self._kafka.clients.admin.ListOffsetsOptions(self._isolation)
        with self._explained(topic):
            offsets = self._admin.listOffsets(asked, how).all().get()
            return {each.partition(): int(offsets[each].offset()) for each in offsets}

    @contextmanager
    def _explained(self, topic: str | None = None) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            what = "the topics cannot be listed" if topic is None else f"topic '{topic}'"
            reason = _reason(error)
            for secret in self._secrets:
                reason = reason.replace(secret, "***")
            raise SourceError(f"{what}: {reason}", passes=may_pass(error)) from error


def open_admin(spark: SparkSession, options: Mapping[str, str]) -> KafkaAdmin | None:
    """Open a client of a cluster; None over Spark Connect, which cannot open one.

    Args:
        options: Those of Spark's reader; of these, the ones that begin with `kafka.`.

    Raises:
        SourceError: An option is invalid.
    """
    session: Any = spark
    if not hasattr(session, "_jvm"):
        return None
    own = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
    return KafkaAdmin(session._jvm, own)


def broker_reason(text: str) -> str | None:
    """Return what an error of Kafka's client means; None if it is not one that users know."""
    return next((reason for name, reason in _REASONS.items() if name in text), None)


def _reason(error: BaseException) -> str:
    """Return why a request failed: a cause that users know, else the innermost one."""
    cause, text = getattr(error, "java_exception", None), str(error)
    while cause is not None:
        name = str(cause.getClass().getSimpleName())
        if name in _REASONS:
            return _REASONS[name]
        text = f"{name}: {cause.getMessage()}"
        cause = cause.getCause()
    return text
