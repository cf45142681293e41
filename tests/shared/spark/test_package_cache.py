"""Jars kept from one start of Spark to the next."""

from __future__ import annotations

import json
import multiprocessing
import os
import pwd
import stat
import time
from pathlib import Path
from textwrap import dedent

import pytest
from python_code import run_code

from shared.errors import SparkStartError
from shared.spark import jvm
from shared.spark.bake_packages import NAMES, coordinates
from shared.spark.packages import INDEX, newest_jars, resolved, with_classpath
from shared.spark.spark_release import installed

CONF = {"spark.jars.packages": "a:b:1,c:d:2", "spark.master": "local[2]"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the lock of the real home free: who resolves packages holds it for long."""
    entry = pwd.getpwuid(os.getuid())
    entry = pwd.struct_passwd([*entry[:5], str(tmp_path), entry[6]])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    return tmp_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), "HOME": str(tmp_path)}


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    path = tmp_path / "b.jar"
    path.touch()
    return path


def conf_of(conf: dict[str, str], environ: dict[str, str]) -> dict[str, str]:
    with resolved(conf, environ) as (actual, _):
        return actual


def remember(conf: dict[str, str], environ: dict[str, str], jars: str) -> None:
    with resolved(conf, environ) as (_, keep):
        keep(jars)


def test_without_packages_nothing_is_kept(environ: dict[str, str], tmp_path: Path) -> None:
    conf = {"spark.master": "local[2]"}
    remember(conf, environ, "file:/x.jar")
    assert conf_of(conf, environ) == conf
    assert not (tmp_path / "cache").exists()


def test_the_second_start_names_the_jars(environ: dict[str, str], jar: Path) -> None:
    assert conf_of(CONF, environ) == CONF
    remember(CONF, environ, f"file://{jar}")
    assert conf_of(CONF, environ) == {"spark.master": "local[2]", "spark.jars": f"file://{jar}"}


def test_jars_of_the_users_stay_first_and_are_not_kept(environ: dict[str, str], jar: Path) -> None:
    mine = {**CONF, "spark.jars": "/mine.jar"}
    remember(mine, environ, f"/mine.jar, file://{jar}")
    assert conf_of(mine, environ)["spark.jars"] == f"/mine.jar,file://{jar}"
    assert conf_of(CONF, environ)["spark.jars"] == f"file://{jar}"


def test_a_jar_that_is_gone_means_another_resolution(environ: dict[str, str], jar: Path) -> None:
    remember(CONF, environ, str(jar))
    jar.unlink()
    assert conf_of(CONF, environ) == CONF


@pytest.mark.parametrize(
    "other",
    [
        {"spark.jars.packages": "a:b:2"},
        {"spark.jars.excludes": "x:y"},
        {"spark.jars.repositories": "https://example.com"},
        {"spark.jars.ivy": "/elsewhere"},
    ],
)
def test_other_packages_are_others(
    environ: dict[str, str], jar: Path, other: dict[str, str]
) -> None:
    remember(CONF, environ, str(jar))
    assert conf_of({**CONF, **other}, environ) == {**CONF, **other}


def test_snapshots_are_resolved_anew(environ: dict[str, str], jar: Path) -> None:
    conf = {"spark.jars.packages": "a:b:1-SNAPSHOT"}
    remember(conf, environ, str(jar))
    assert conf_of(conf, environ) == conf


@pytest.mark.parametrize("damage", ["", "[]", "{}", "nonsense", '["/no/such.jar"]', "[5]"])
def test_a_damaged_file_is_passed_over(
    environ: dict[str, str], jar: Path, tmp_path: Path, damage: str
) -> None:
    remember(CONF, environ, str(jar))
    (kept,) = (tmp_path / "cache" / "singer-spark").glob("packages-*.json")
    kept.write_text(damage)
    assert conf_of(CONF, environ) == CONF
    remember(CONF, environ, str(jar))
    assert conf_of(CONF, environ)["spark.jars"] == str(jar)


@pytest.mark.parametrize("planted", ["folder", "file", "link"])
def test_jars_that_others_may_have_named_are_not_loaded(
    environ: dict[str, str], jar: Path, tmp_path: Path, planted: str
) -> None:
    remember(CONF, environ, str(jar))
    folder = tmp_path / "cache" / "singer-spark"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (kept,) = folder.glob("packages-*.json")
    if planted == "folder":
        folder.chmod(0o777)
    elif planted == "file":
        kept.chmod(0o666)
    else:
        kept.symlink_to(kept.rename(tmp_path / "elsewhere.json"))
    assert conf_of(CONF, environ) == CONF


def test_what_cannot_be_kept_is_no_error(tmp_path: Path, jar: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"XDG_CACHE_HOME": str(tmp_path / "file")}
    remember(CONF, environ, str(jar))
    assert conf_of(CONF, environ) == CONF


def _hold(conf: dict[str, str], environ: dict[str, str], jar: str, began: str) -> None:
    with resolved(conf, environ) as (actual, keep):
        Path(began).touch()
        assert "spark.jars.packages" in actual
        time.sleep(0.5)
        keep(jar)


@pytest.mark.parametrize("packages", [CONF["spark.jars.packages"], "x:y:1"])
@pytest.mark.parametrize("other", [{}, {"XDG_CACHE_HOME": "/no"}, {jvm.SWITCH: "off"}])
def test_a_second_process_waits_for_the_first(
    environ: dict[str, str], jar: Path, tmp_path: Path, packages: str, other: dict[str, str]
) -> None:
    """Ivy's cache is one for all, whatever folder for jars the processes have."""
    began = tmp_path / "began"
    first_conf = {**CONF, "spark.jars.ivy": str(tmp_path / "ivy")}
    conf = {**first_conf, "spark.jars.packages": packages}
    fork = multiprocessing.get_context("spawn")
    first = fork.Process(target=_hold, args=(first_conf, environ, str(jar), str(began)))
    first.start()
    while not began.exists():
        assert first.is_alive()
        time.sleep(0.01)
    actual = conf_of(conf, environ | other)
    kept = conf_of(first_conf, environ)
    assert kept["spark.jars"] == str(jar)  # the first is through
    assert actual == (kept if conf == first_conf and not other else conf)
    first.join()
    assert first.exitcode == 0


def test_the_lock_is_where_java_has_its_home(environ: dict[str, str], home: Path) -> None:
    environ["HOME"] = "/no/such/home"
    conf_of(CONF, environ)
    assert (home / ".ivy2" / "singer-spark.lock").exists()


def test_a_user_without_a_name_needs_no_lock(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_: int) -> pwd.struct_passwd:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert conf_of(CONF, environ) == CONF
    assert not (tmp_path / "missing").exists()


@pytest.fixture
def baked(environ: dict[str, str], tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    index = {"a:b:1": ["a_b-1.jar", "x_y-1.9.jar"], "c:d:2": ["c_d-2.jar", "x_y-1.10.jar"]}
    (folder / INDEX).write_text(json.dumps(index))
    environ["SINGER_SPARK_JARS"] = str(folder)
    return folder


def test_jars_of_the_image_are_taken(environ: dict[str, str], baked: Path, tmp_path: Path) -> None:
    actual = conf_of({**CONF, "spark.jars": "/mine.jar"}, environ)
    names = ("a_b-1.jar", "x_y-1.10.jar", "c_d-2.jar")
    assert actual == {
        "spark.master": "local[2]",
        "spark.jars": ",".join(["/mine.jar", *((baked / name).as_uri() for name in names)]),
    }
    assert not (tmp_path / "cache").exists()


def test_jars_that_every_executor_has_are_not_sent(environ: dict[str, str], baked: Path) -> None:
    environ["SINGER_SPARK_JARS"] = f"local:{baked}"
    actual = conf_of({"spark.jars.packages": "a:b:1"}, environ)
    assert actual["spark.jars"] == f"local:{baked}/a_b-1.jar,local:{baked}/x_y-1.9.jar"


def test_what_the_image_lacks_is_resolved(environ: dict[str, str], baked: Path) -> None:
    actual = conf_of({"spark.jars.packages": "a:b:1,c:d:3"}, environ)
    assert actual["spark.jars.packages"] == "c:d:3"
    assert actual["spark.jars"].endswith("a_b-1.jar,file://" + str(baked / "x_y-1.9.jar"))


def test_an_image_without_its_index(environ: dict[str, str], baked: Path) -> None:
    (baked / INDEX).write_text("[")
    with pytest.raises(SparkStartError, match="has no valid"):
        conf_of(CONF, environ)
    assert conf_of({"spark.master": "x"}, environ) == {"spark.master": "x"}


def test_the_newest_version_is_kept() -> None:
    names = ["g_a-1.9.jar", "g_b-2.jar", "g_a-1.10.jar", "odd.jar", "g_c_2.13-4.4.0.jar"]
    assert newest_jars(names) == ["g_a-1.10.jar", "g_b-2.jar", "odd.jar", "g_c_2.13-4.4.0.jar"]


def test_names_of_packages() -> None:
    assert coordinates(["delta", "x:y:1", "delta"]) == [installed().packages["delta"], "x:y:1"]
    assert {"iceberg", "avro", "kafka", "s3", "postgresql", "mysql", "oracle"} <= NAMES.keys()
    with pytest.raises(SparkStartError, match="unknown package 'deltalake'"):
        coordinates(["deltalake"])


@pytest.mark.pipe
@pytest.mark.server
def test_a_package_that_cannot_be_baked_is_named() -> None:
    code = """
        from shared.spark import bake_packages
        try:
            bake_packages._resolved(["org.example.none:none_2.13:1"])
        except RuntimeError as error:
            print(error)
    """
    assert "unresolved dependency: org.example.none#none_2.13;1" in run_code(dedent(code)).stdout


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "local:{}", "local://{}"])
@pytest.mark.parametrize("master", ["local", "local[2]", "local[*, 3]"])
def test_the_classpath_of_one_process_takes_its_jars(
    environ: dict[str, str], tmp_path: Path, form: str, master: str
) -> None:
    jars = [tmp_path / "an ü.jar", tmp_path / "b-1+c.jar"]
    for path in jars:
        path.touch()
    conf = {"spark.master": master, "spark.jars": ", ".join(form.format(path) for path in jars)}
    assert with_classpath(conf, environ) == ({"spark.master": master}, [*map(str, jars)])
    assert with_classpath({"spark.master": master}, environ) == ({"spark.master": master}, [])


@pytest.mark.parametrize(
    "name",
    [
        "missing.jar",
        "folder",
        "a:b.jar",
        "a%20b.jar",
        "*",
        "*.jar",
        "[ab].jar",
        "hdfs://h/b.jar",
        "file://h/b.jar",
        "s3a://bucket/b.jar",
    ],
)
def test_spark_takes_all_jars_if_the_classpath_cannot_take_one(
    environ: dict[str, str], tmp_path: Path, jar: Path, name: str
) -> None:
    (tmp_path / "folder").mkdir()
    for special in ("a:b.jar", "a%20b.jar", "*", "*.jar", "[ab].jar"):
        (tmp_path / special).touch()
    other = name if "://" in name else f"{tmp_path}/{name}"
    conf = {"spark.master": "local[2]", "spark.jars": f"{jar},{other}"}
    assert with_classpath(conf, environ) == (conf, [])


@pytest.mark.parametrize("master", ["spark://h:7077", "local-cluster[2,1,512]", "yarn", "k8s://h"])
def test_executors_of_a_cluster_get_the_jars_from_spark(
    environ: dict[str, str], jar: Path, master: str
) -> None:
    conf = {"spark.master": master, "spark.jars": str(jar)}
    assert with_classpath(conf, environ) == (conf, [])


@pytest.mark.parametrize(
    ("conf", "options", "defaults"),
    [
        ({"spark.jars.packages": "a:b:1"}, "", ""),
        ({"spark.driver.userClassPathFirst": "true"}, "", ""),
        ({}, "--jars /x.jar pyspark-shell", ""),
        ({}, "--packages a:b:1 pyspark-shell", ""),
        ({}, "--conf spark.jars=/x.jar pyspark-shell", ""),
        ({}, "", "spark.jars.packages a:b:1\n"),
        ({}, "", "spark.executor.userClassPathFirst=true\n"),
    ],
)
def test_spark_takes_all_jars_beside_those_of_the_users(
    environ: dict[str, str],
    tmp_path: Path,
    jar: Path,
    conf: dict[str, str],
    options: str,
    defaults: str,
) -> None:
    """Classes of the classpath could not see theirs."""
    (tmp_path / "spark-defaults.conf").write_text(defaults)
    environ |= {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": options}
    conf = {"spark.master": "local[2]", "spark.jars": str(jar), **conf}
    assert with_classpath(conf, environ) == (conf, [])
