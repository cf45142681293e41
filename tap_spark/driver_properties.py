"""Properties of JDBC drivers that are rejected, in `properties` and in URLs. Pure.

A driver's properties can make it load classes, run scripts, read and write files, or hand files
to the server. Such names are searched for everywhere in the decoded URL, for any syntax of
its database: rejecting a harmless name is better than missing a dangerous one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

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
    for text in decoded(url):
        yield from (name for name in _NAME.findall(text) if is_dangerous(name))
        yield from (name for pattern, name in REJECTED_URLS if pattern.search(text.lower()))


def decoded(url: str) -> Iterable[str]:
    """Return the URL, and what repeated decoding turns it into."""
    texts = [url]
    for _ in range(_DECODINGS):
        text = unquote(texts[-1])
        if text == texts[-1]:
            break
        texts.append(text)
    return texts
