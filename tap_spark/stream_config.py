"""The typed forms of the items of `connections` and `streams`.

Some properties of JDBC drivers are rejected, in `properties` and in URLs: they make a driver load
classes, run scripts, read and write files, or hand files to the server. Such names are searched for
everywhere in the decoded URL, for any syntax of its database: rejecting a harmless name is better
than missing a dangerous one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from shared.errors import InvalidSettingsError
from shared.settings.checking import Problem
from shared.settings.kinds import (
    ANY_TEXT,
    NAMES,
    PLACE,
    SECRET_VALUES,
    SWITCH,
    TEXT,
    at_least,
    one_of,
    setting,
)

DANGEROUS: Mapping[str, str] = {
    "PostgreSQL": "authenticationPluginClassName jaasApplicationName jaasLogin loggerFile "
    "loggerLevel service socketFactory socketFactoryArg sslfactory sslfactoryarg "
    "sslhostnameverifier sslpasswordcallback xmlFactoryFactory",
    "MySQL and MariaDB": "allowLoadLocalInfile allowLoadLocalInfileInPath allowLocalInfile "
    "allowMultiQueries allowUrlInLocalInfile authenticationPlugins autoDeserialize "
    "clientCertificateKeyStoreUrl clientInfoProvider connectionLifecycleInterceptors "
    "credentialType defaultAuthenticationPlugin detectCustomCollations exceptionInterceptors "
    "ha.loadBalanceStrategy idTokenFile initSql loadBalanceExceptionChecker logger ociConfigFile "
    "profilerEventHandler propertiesTransform queryInterceptors serverAffinityOrder "
    "statementInterceptors trustCertificateKeyStoreUrl",
    "SQL Server": "accessTokenCallbackClass jaasConfigurationName socketFactoryClass "
    "socketFactoryConstructorArg trustManagerClass trustManagerConstructorArg "
    "useDefaultJaasConfig",
    "Oracle": "oracle.net.tns_admin TNS_ADMIN",
    "SQLite": "enable_load_extension",
    "DuckDB": "allow_community_extensions allow_unsigned_extensions autoinstall_known_extensions "
    "autoinstall_extension_repository autoload_known_extensions custom_extension_repository "
    "extension_directory secret_directory session_init_sql_file",
    "others": "clientRerouteServerListJNDIName DATABASE_EVENT_LISTENER INIT RUNSCRIPT "
    "TC_INITFUNCTION TC_INITSCRIPT TRACE_LEVEL_FILE traceDirectory traceFile",
}
"""Names of rejected properties, by database; each is rejected for every database, in any case."""
SUSPECT = re.compile(
    r"factory|interceptor|plugin|callback|class(name|path|loader)?$|jndi|jaas|deserializ"
    r"|localinfile|load_?extension|unsigned|initscript|init_?sql|log(ger)?_?(file|path|dir)"
    r"|trace_?(file|path|dir)|oracle\.jdbc\.(provider|config)"
)
"""Parts of names, in lower case, that mark such properties of any driver."""
REJECTED_URLS = (
    (re.compile(r"jdbc:sqlite:.*:resource:", re.DOTALL), ":resource:"),
    (re.compile(r"jdbc:oracle:\w+:[^@]*@\s*config-", re.DOTALL), "config-"),
    (re.compile(r"jdbc:oracle:\w+:[^@]*@\s*ldaps?:", re.DOTALL), "ldap:"),
)
"""Parts of URLs that make drivers fetch what they then load."""
SPARK_OPTIONS = (
    "url driver user password dbtable query prepareQuery sessionInitStatement customSchema "
    "partitionColumn lowerBound upperBound numPartitions queryTimeout fetchsize batchsize "
    "isolationLevel truncate cascadeTruncate createTableOptions createTableColumnTypes "
    "pushDownPredicate pushDownAggregate pushDownLimit pushDownOffset pushDownTableSample "
    "pushDownJoin preferTimestampNTZ hint connectionProvider"
)
"""Options of Spark's reader, which never reach the driver; settings of their own set them."""
_REJECTED = frozenset(" ".join(DANGEROUS.values()).lower().split())
_SPARK_OPTIONS = frozenset(SPARK_OPTIONS.lower().split())
_NAME = re.compile(r"([A-Za-z_][\w.$-]*)\s*=")
_CUT_LOGIN = re.compile(
    r"\s*jdbc:(?:mysql|mariadb|postgresql)[^/]*//"
    r"[^/?#@\[;=(]*?:(?!\d+([/?#,;]|$)|/)[^/?#@]*[/?#].*@"
)
"""A URL whose login ends early, by a sign of the password: drivers show it as a host or port."""
_DECODINGS = 3
_NOT_A_PROPERTY = "is an option of Spark's reader, not a property of the driver; remove it"


def property_problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Find properties of a connection that are rejected.

    Args:
        item: An item of `connections`, not necessarily a valid one.

    Yields:
        The path inside the item, and what is wrong there; never a value.
    """
    allowed_names = item.get("allow_properties")
    names = allowed_names if isinstance(allowed_names, list | tuple) else ()
    allowed = {str(name).lower() for name in names}
    url = item.get("url")
    if isinstance(url, str):
        if _CUT_LOGIN.match(url):
            yield ("url",), "holds a password with /, ? or #; set 'user' and 'password' instead"
        for name in dict.fromkeys(_dangerous_in(url)):
            if name.lower() not in allowed:
                yield ("url",), _refusal(name)
    properties = item.get("properties")
    for name in properties if isinstance(properties, Mapping) else ():
        key = str(name).strip().lower()
        if key in _SPARK_OPTIONS:
            yield ("properties", str(name)), _NOT_A_PROPERTY
        elif key not in allowed and is_dangerous(key):
            yield ("properties", str(name)), _refusal(str(name))


def is_dangerous(name: str) -> bool:
    """Return whether a property could load classes, read files or the like."""
    key = name.strip().lower()
    return key in _REJECTED or SUSPECT.search(key) is not None


def _refusal(name: str) -> str:
    return (
        f"the driver property {name!r} can load code, read files or turn off security; "
        f"remove it, or list it in 'allow_properties'"
    )


def _dangerous_in(url: str) -> Iterator[str]:
    for text in decodings(url):
        yield from (name for name in _NAME.findall(text) if is_dangerous(name))
        yield from (name for pattern, name in REJECTED_URLS if pattern.search(text.lower()))


def decodings(url: str) -> Iterable[str]:
    """Return the URL, and what repeated decoding turns it into."""
    texts = [url]
    for _ in range(_DECODINGS):
        text = unquote(texts[-1])
        if text == texts[-1]:
            break
        texts.append(text)
    return texts


KINDS = {"url": "a url", "catalog": "a catalog", "path": "a path", "brokers": "brokers"}
"""Kinds of connections, each with its words; an item has exactly one of these settings."""
ONLY_FOR_BROKERS = ("options", "schema_registry")
ONLY_FOR_URL = (
    "user",
    "password",
    "password_variable",
    "driver",
    "package",
    "properties",
    "allow_properties",
    "snapshot",
    "partitions",
    "fetch_size",
    "retries",
    "count_rows",
)
_URL_SECRET = re.compile(r"(?:password|passwd|pwd|secret|token)\w*\s*=\s*([^&;,\s)]+)", re.I)
_URL_LOGIN = re.compile(r"//[^/?#@]*?:([^/?#]*)@|jdbc:oracle:\w+:[^/@]*/([^@]*)@")
_SECRET_NAME = re.compile(r"password|passwd|pwd|secret|token|key$", re.I)


@dataclass(frozen=True)
class ConnectionConfig:
    """One item of `connections`."""

    name: str = setting(TEXT, "Name of the connection.", required=True, examples=["shop"])
    url: str | None = setting(
        TEXT,
        "JDBC URL of a database.",
        secret=True,
        examples=["jdbc:postgresql://db.example.com/shop"],
    )
    user: str | None = setting(TEXT, "User name.")
    password: str | None = setting(ANY_TEXT, "Password of the user.", secret=True)
    password_variable: str | None = setting(
        TEXT,
        "Environment variable that holds the password, if `password` is not set.",
        examples=["SHOP_PASSWORD"],
    )
    driver: str | None = setting(
        TEXT, "Java class of the JDBC driver, if the url does not determine it."
    )
    package: str | None = setting(
        TEXT,
        "Maven coordinates of the JDBC driver, if the url does not determine them, or for another "
        "version.",
        examples=["org.postgresql:postgresql:42.7.14"],
    )
    properties: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Further properties of the JDBC driver.",
        default={},
        examples=[{"ssl": True}],
    )
    allow_properties: tuple[str, ...] = setting(
        NAMES,
        "Names of driver properties to allow, although they can load classes, read files or turn "
        "off security.",
        default=[],
    )
    catalog: str | None = setting(
        TEXT,
        "Name of a Spark catalog (configured in `spark.conf`).",
        examples=["spark_catalog"],
    )
    path: str | None = setting(
        PLACE,
        "Folder or URL with Delta and Iceberg tables below it.",
        examples=["/lake", "s3a://bucket/lake"],
    )
    brokers: str | None = setting(
        TEXT,
        "Brokers of Kafka, as `host:port`, with commas between them.",
        examples=["kafka-1.example.com:9092,kafka-2.example.com:9092"],
    )
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Options of Kafka's consumer for the connection, such as those of SASL and TLS; their "
        "names begin with `kafka.`. Only with `brokers`.",
        default={},
        examples=[{"kafka.security.protocol": "SASL_SSL"}],
    )
    schema_registry: str | None = setting(
        TEXT,
        "URL of the schema registry, with user and password if it asks for them. Only with "
        "`brokers`.",
        secret=True,
        examples=["https://registry.example.com:8081"],
    )
    include: tuple[str, ...] = setting(
        NAMES,
        "Globs of `schema.table`, or of topics, to list.",
        default=["*"],
        examples=[["public.*", "sales.order_*"]],
    )
    exclude: tuple[str, ...] = setting(
        NAMES, "Globs of `schema.table`, or of topics, to exclude, even if included.", default=[]
    )
    views: bool = setting(SWITCH, "Whether to list views.", default=True)
    stream_prefix: str = setting(
        ANY_TEXT, "Prefix of the name of every stream of the connection.", default=""
    )
    snapshot: bool = setting(
        SWITCH,
        "Read all parts of a table in one snapshot, if the database can (see "
        "`tap-spark docs databases`).",
        default=True,
    )
    partitions: int | None = setting(
        at_least(1),
        "Number of parts of a table to read in parallel; chosen from the table's statistics if not "
        "set.",
    )
    fetch_size: int = setting(
        at_least(1),
        "Rows the JDBC driver fetches at a time, at most: fewer if they would be more than 16 MiB.",
        default=10_000,
    )
    retries: int = setting(
        at_least(0),
        "How often to retry after a temporary failure, such as a lost connection.",
        default=3,
    )
    count_rows: bool = setting(
        SWITCH,
        "Let the database count the rows of each read before it begins, and warn if another number "
        "of records was sent. Costs a query for each stream.",
        default=False,
    )


def secrets_of(connection: ConnectionConfig) -> tuple[str, ...]:
    """Return every text of a connection that no message may show, the longest first."""
    secrets = [connection.password or ""]
    for text in decodings(connection.url or ""):
        secrets += _URL_SECRET.findall(text)
        secrets += [part for pair in _URL_LOGIN.findall(text) for part in pair]
    secrets += [value for name, value in connection.properties.items() if _SECRET_NAME.search(name)]
    return tuple(sorted({text for text in secrets if text}, key=len, reverse=True))


def with_passwords(settings: Mapping[str, Any], variables: Mapping[str, str]) -> Mapping[str, Any]:
    """Return settings with the passwords that `password_variable` of connections leads to.

    Args:
        settings: All settings, not necessarily valid ones.
        variables: Environment variables; an empty value means not set.

    Raises:
        InvalidSettingsError: Variables are not set; names each of them.
    """
    items = settings.get("connections")
    if not isinstance(items, list):
        return settings
    problems: list[str] = []
    connections: list[Any] = []
    for index, item in enumerate(items):
        name = item.get("password_variable") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or "password" in item:
            connections.append(item)
        elif variables.get(name):
            connections.append({**item, "password": variables[name]})
        else:
            at = f"config['connections'][{index}]['password_variable']"
            problems.append(f"{at}: the environment variable '{name}' is not set (export {name})")
    if problems:
        raise InvalidSettingsError(problems)
    return {**settings, "connections": connections}


def connection_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the cross-field rules of `connections`."""
    connections = settings.get("connections")
    items = connections if isinstance(connections, list) else []
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            continue
        yield from (Problem(("connections", index, *at), text) for at, text in _problems(item))
        name = item.get("name")
        if isinstance(name, str) and seen.setdefault(name, index) != index:
            text = f"{name!r} is already the name of config['connections'][{seen[name]}]"
            yield Problem(("connections", index, "name"), text)
    if not settings.get("streams") and not items:
        yield Problem((), "nothing to read: set 'streams', 'connections' or both")


def _problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    present = [kind for kind in KINDS if kind in item]
    if len(present) != 1:
        listed = ", ".join(map(repr, KINDS))
        yield (), f"needs exactly one of {listed}"
    url = item.get("url")
    if isinstance(url, str) and not url.startswith("jdbc:"):
        yield ("url",), "must begin with 'jdbc:'"
    yield from property_problems(item)
    if "url" not in item:
        for name in ONLY_FOR_URL:
            if name in item:
                yield (name,), "applies only with 'url'; remove it"
    yield from _broker_problems(item)


def _broker_problems(item: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    if "brokers" not in item:
        for name in ONLY_FOR_BROKERS:
            if name in item:
                yield (name,), "applies only with 'brokers'; remove it"
        return
    options = item.get("options")
    for name in options if isinstance(options, Mapping) else ():
        if not str(name).startswith("kafka."):
            yield ("options", str(name)), "must begin with 'kafka.'"
        if name == "kafka.bootstrap.servers":
            yield ("options", str(name)), "is the setting 'brokers'; remove it"
    registry = item.get("schema_registry")
    if isinstance(registry, str) and not registry.startswith(("http://", "https://")):
        yield ("schema_registry",), "must begin with 'http://' or 'https://'"
    elif isinstance(registry, str):
        try:
            _ = urlsplit(registry).port
        except ValueError:  # Its text may hold the password.
            yield ("schema_registry",), "is not a URL"


PYTHON_SOURCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True)
class StreamConfig:
    """One item of `streams`.

    `database` is the item of `connections` that it names; `own` holds the settings that the format
    itself declares, in its typed form.
    """

    name: str = setting(TEXT, "Name of the stream.", required=True, examples=["orders"])
    format: str = setting(
        TEXT,
        "What is read.",
        required=True,
        examples=["csv", "jdbc", "my_sources.weather.WeatherSource"],
    )
    path: str | tuple[str, ...] | None = setting(
        {**PLACE, "type": ["string", "array"], "items": PLACE, "minItems": 1},
        "File, folder or glob, or a list of them. For files, and for `delta` and `iceberg` tables "
        "outside a catalog.",
        examples=["data/*.csv", ["2025/", "2026/"]],
    )
    table: str | None = setting(
        TEXT,
        "Table or view: of the connection (`jdbc`), or of a Spark catalog (`table`, `delta`, "
        "`iceberg`). Quote parts with dots or upper case.",
        examples=["public.orders", 'sales."Order Lines"', "lake.db.events"],
    )
    query: str | None = setting(
        TEXT,
        "One statement that only reads, in the database's SQL (`jdbc`) or in Spark's (`sql`).",
        examples=["SELECT id, total FROM orders WHERE total > 0"],
    )
    connection: str | None = setting(
        TEXT,
        "Name of the item of `connections` to read from. Only for `jdbc` and `kafka`; by default "
        "the only connection with a `url`, or with `brokers`.",
    )
    database: ConnectionConfig | None = None
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Options of Spark's reader for the format, or of a Spark DataSource class. Names that the "
        "reader does not know are rejected, except those with a dot (`fs.s3a.endpoint`).",
        default={},
        examples=[{"header": True, "sep": ";"}],
    )
    schema: str | None = setting(
        TEXT,
        "Columns and types in Spark DDL; inferred from the data if not set.",
        examples=["id BIGINT, name STRING"],
    )
    key_properties: tuple[str, ...] = setting(NAMES, "Columns of the primary key.", default=[])
    replication_key: str | None = setting(
        TEXT, "Column whose greatest value is the bookmark.", examples=["updated_at"]
    )
    replication_method: str | None = setting(
        one_of(("FULL_TABLE", "INCREMENTAL", "LOG_BASED")),
        "`INCREMENTAL` if `replication_key` is set, else `FULL_TABLE`. `INCREMENTAL` without a "
        "replication key resumes files by file and line. `LOG_BASED` reads the changes of `delta` "
        "and `iceberg` tables, deletes included; it is the default of `kafka`.",
    )
    end_date: str | float | None = setting(
        {"type": ["string", "number"], "minLength": 1},
        "Upper bound of the replication key (exclusive): a date or timestamp (UTC if it has no "
        "offset), or a value of the key's type. Rows without a key are read, too.",
        examples=["2026-01-01T00:00:00Z", 1000],
    )
    deletes: str | None = setting(
        one_of(("keys",)),
        "`keys`: also send the keys of all rows, so that target-spark deletes rows that the source "
        "has no more. Needs `replication_key`, `key_properties` and `batch_config`; see "
        "`tap-spark docs operate#deletions`.",
    )
    deletes_every: int = setting(at_least(1), "Send the keys once in so many runs.", default=1)
    sort_by_replication_key: bool = setting(
        SWITCH,
        "Sort by the replication key, so that an interrupted run can resume inside the stream.",
        default=False,
    )
    read_unterminated_line: bool = setting(
        SWITCH,
        "`INCREMENTAL` reads a last line without line end at once, instead of waiting for its line "
        "end. For files that never get one. Only for `csv`, `text` and `fixed_width`: a last line "
        "of `json` is read as soon as it is complete.",
        default=False,
    )
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, as a tuple even if there is only one."""
        if self.path is None:
            return ()
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def is_incremental(self) -> bool:
        """Whether its replication method is INCREMENTAL, if no catalog says otherwise."""
        method = self.replication_method
        return method == "INCREMENTAL" or (method is None and self.replication_key is not None)

    @property
    def is_python_source(self) -> bool:
        return is_python_source(self.format)


def is_python_source(text: object) -> bool:
    """Return whether a format names an importable class (`package.module.Class`)."""
    return isinstance(text, str) and PYTHON_SOURCE.fullmatch(text) is not None
