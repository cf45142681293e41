"""What the tap says if Java has ended, as the system ends it for its memory."""

from __future__ import annotations

import socket

import pytest
from py4j.clientserver import ClientServerConnection, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayProperty

from shared.errors import SparkLostError
from tap_spark.send.sync import explained


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_spark_has_gone_away() -> None:
    """A thread without a connection to Java gets a plain error of the socket."""
    java, python = JavaParameters(port=free_port()), PythonParameters()
    connection = ClientServerConnection(java, python, GatewayProperty(False, None), None)
    with pytest.raises(SparkLostError, match="stream 's': Spark has gone away"), explained("s"):
        connection.connect_to_java_server()


def test_other_connections_have_their_own_errors() -> None:
    with pytest.raises(ConnectionRefusedError), explained("s"):
        socket.create_connection(("127.0.0.1", free_port()))
