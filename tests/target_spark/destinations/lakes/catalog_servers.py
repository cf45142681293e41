"""Real catalogs for Iceberg on loopback, in a Java process of the tests' own.

REST: Iceberg's own servlet, over its JDBC catalog. Hive: the metastore that comes with Spark, over
Derby in memory. Their main programs would listen to every network, so they are put together here.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.spark.jvm import find_java

ICEBERG = "1.11.0"
"""The newest version whose tests, with the servlet, are published."""

JARS = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="tests" module="catalogs"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->master">
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{ICEBERG}">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-api" rev="{ICEBERG}"/>
    <dependency org="org.apache.iceberg" name="iceberg-common" rev="{ICEBERG}"/>
    <dependency org="org.apache.iceberg" name="iceberg-bundled-guava" rev="{ICEBERG}"/>
    <dependency org="com.github.ben-manes.caffeine" name="caffeine" rev="2.9.3"/>
    <dependency org="org.apache.httpcomponents.client5" name="httpclient5" rev="5.6.1"/>
    <dependency org="org.apache.httpcomponents.core5" name="httpcore5" rev="5.4"/>
    <dependency org="org.apache.httpcomponents.core5" name="httpcore5-h2" rev="5.4"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="3.53.4.0"/>
  </dependencies>
</ivy-module>
"""
"""What the servlet needs and Spark does not have, for Ivy: Spark's packages have no classifiers."""

METASTORE = {
    "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.stats.autogather": "false",
    # Else it rejects an overwrite with other columns.
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
    "datanucleus.connectionPoolingType": "None",
}


@dataclass(frozen=True)
class CatalogServer:
    """A running catalog.

    Attributes:
        kind: `rest` or `hive`, as Iceberg calls it.
        uri: Where it answers.
        warehouse: Folder of its tables.
    """

    kind: str
    uri: str
    warehouse: Path

    @property
    def conf(self) -> dict[str, str]:
        """Return Spark's configuration of the catalog, whose name is its kind."""
        name = f"spark.sql.catalog.{self.kind}"
        return {
            name: "org.apache.iceberg.spark.SparkCatalog",
            f"{name}.type": self.kind,
            f"{name}.uri": self.uri,
            f"{name}.warehouse": str(self.warehouse),
        }


class CatalogProcess:
    """A Java process that serves catalogs.

    Args:
        folder: For tables, databases and logs.
        cache: Where jars are kept from run to run.
    """

    def __init__(self, folder: Path, cache: Path) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        java = str(find_java(os.environ).binary)
        spark = spark_jars()
        jars = f"{rest_jars(java, spark, cache)}:{spark}/*"
        self._folder = folder
        self._log = (folder / "java.log").open("w")
        port, token, process = launch_gateway(
            jarpath=str(next(spark.glob("py4j-*.jar"))),
            classpath=jars,
            javaopts=[
                "-Xmx256m",
                "-XX:TieredStopAtLevel=1",
                f"-Dderby.stream.error.file={folder}/derby.log",
            ],
            die_on_exit=True,
            java_path=java,
            redirect_stdout=self._log,
            redirect_stderr=self._log,
            enable_auth=True,
            return_proc=True,
            cwd=str(folder),
        )
        self.process = process
        parameters = GatewayParameters(port=port, auth_token=token, auto_convert=True)
        self._gateway = JavaGateway(gateway_parameters=parameters)
        self._java: Any = self._gateway.jvm
        self._thrift: Any = None

    def rest(self) -> CatalogServer:
        """Start Iceberg's REST server."""
        warehouse = self._folder / "rest"
        warehouse.mkdir()
        catalog = self._java.org.apache.iceberg.jdbc.JdbcCatalog()
        catalog.setConf(self._java.org.apache.hadoop.conf.Configuration())
        uri = f"jdbc:sqlite:{warehouse}/catalog.db"
        options = {"uri": uri, "jdbc.schema-version": "V1", "warehouse": str(warehouse)}
        catalog.initialize("backend", options)
        rest = self._java.org.apache.iceberg.rest
        servlet = rest.RESTCatalogServlet(rest.RESTCatalogAdapter(catalog))
        # Spark's own copy of Jetty.
        jetty = self._java.org.sparkproject.jetty
        context = jetty.servlet.ServletContextHandler()
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(self._java.java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        port = server.getConnectors()[0].getLocalPort()
        return CatalogServer("rest", f"http://127.0.0.1:{port}", warehouse)

    def hive(self) -> CatalogServer:
        """Start Hive's metastore."""
        warehouse = self._folder / "hive"
        warehouse.mkdir()
        hive = self._java.org.apache.hadoop.hive
        conf = hive.conf.HiveConf()
        places = {"hive.metastore.warehouse.dir": str(warehouse)}
        for name, value in {**METASTORE, **places}.items():
            conf.set(name, value)
        transactions = hive.metastore.txn.TxnDbUtil
        transactions.setConfValues(conf)
        transactions.prepDb(conf)  # the tables for locks
        handler = hive.metastore.HiveMetaStore.HMSHandler("tests", conf, False)
        handler = hive.metastore.RetryingHMSHandler.getProxy(conf, handler, False)
        thrift = self._java.org.apache.thrift
        address = self._java.java.net.InetSocketAddress("127.0.0.1", 0)
        listener = thrift.transport.TServerSocket(address)
        options = thrift.server.TThreadPoolServer.Args(listener)
        options.processor(hive.metastore.TSetIpAddressProcessor(handler))
        self._thrift = thrift.server.TThreadPoolServer(options)
        threading.Thread(target=_served, args=(self._thrift,), daemon=True).start()
        while not self._thrift.isServing():
            assert self.process.poll() is None, "the metastore has ended"
            time.sleep(0.05)
        port = listener.getServerSocket().getLocalPort()
        return CatalogServer("hive", f"thrift://127.0.0.1:{port}", warehouse)

    def stop(self) -> None:
        """End the process."""
        if self._thrift is not None:
            self._thrift.stop()
        self.process.kill()
        self.process.wait(10)
        self._gateway.close()
        self._log.close()


def spark_jars() -> Path:
    """Return the folder of the jars that come with Spark."""
    import pyspark

    return Path(pyspark.__file__).parent / "jars"


def rest_jars(java: str, spark: Path, cache: Path) -> str:
    """Return the classpath of what Spark lacks, fetched by the Ivy that comes with Spark."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted, actual = cache / "ivy.xml", cache / "classpath"
        existing = actual.read_text().strip() if actual.exists() else ""
        if (
            existing
            and wanted.read_text() == JARS
            and all(map(os.path.isfile, existing.split(":")))
        ):
            return existing
        actual.unlink(missing_ok=True)
        wanted.write_text(JARS)
        ivy = str(next(spark.glob("ivy-*.jar")))
        command = [java, "-cp", ivy, "org.apache.ivy.Main", "-ivy", str(wanted)]
        places = ["-cache", str(cache), "-cachepath", str(actual)]
        done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=300)
        assert actual.exists(), done.stdout[-2000:]
        return actual.read_text().strip()


def _served(server: Any) -> None:
    with suppress(Exception):  # the process ends before it answers
        server.serve()
