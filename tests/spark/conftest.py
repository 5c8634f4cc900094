"""A real Spark session for all tests of a process, and real servers for each test."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.system.processes import Servers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
# For a JVM that lives for seconds: what the second compiler makes of its code would come too late,
# and looking whether Spark's classes are sound takes a sixth of its processor time.
SOON = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
WITHOUT_PANDAS = Path(__file__).parent / "without_pandas"
_hidden_pandas: dict[str, ModuleType] = {}


@pytest.fixture(scope="session")
def java() -> None:
    """Skips what needs Spark where there is no Java."""
    java_home = os.environ.get("JAVA_HOME")
    there = java_home and (Path(java_home) / "bin" / "java").exists()
    if not there and not shutil.which("java"):
        pytest.skip("no Java: install one, or set JAVA_HOME (docs/spark.md says how without root)")


@pytest.fixture(scope="session", autouse=True)
def python_of_spark(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Spark's processes find this Python, the format by itself, and the tests' own modules; neither
    they nor we find pandas, which the extra for Spark does not bring.
    """
    sys.path.insert(0, str(WITHOUT_PANDAS))
    # What tests of tables import brings it, before this.
    _hidden_pandas.update(_take_pandas())
    from magnetar_spark.jobs.spark_home import home_without_archive

    # They start in a third of the time that a user's take.
    os.environ.update(home_without_archive(tmp_path_factory.mktemp("spark")))
    if "SPARK_CONF_DIR" not in os.environ:
        settings = tmp_path_factory.mktemp("spark-conf")
        (settings / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions {SOON}\n")
        os.environ["SPARK_CONF_DIR"] = str(settings)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    path = [WITHOUT_PANDAS, ROOT / "pipeline", ROOT, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(str(one) for one in path if one)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"


def _take_pandas() -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "pandas"]
    return {name: sys.modules.pop(name) for name in names}


@pytest.fixture(scope="module")
def pandas(python_of_spark: None) -> Iterator[None]:
    """For tests of what brings it: the extra for tables."""
    sys.modules.update(_hidden_pandas)
    sys.path.remove(str(WITHOUT_PANDAS))
    yield
    _hidden_pandas.update(_take_pandas())
    sys.path.insert(0, str(WITHOUT_PANDAS))


def environment_of_a_user(*, pandas: bool = False) -> dict[str, str]:
    """Of a process that runs what a user wrote: nobody has told Spark which Python to take."""
    environ = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith("PYSPARK_") and name != "SPARK_HOME"
    }
    if pandas:
        path = environ["PYTHONPATH"].split(os.pathsep)
        path.remove(str(WITHOUT_PANDAS))
        environ["PYTHONPATH"] = os.pathsep.join(path)
    return environ


@pytest.fixture(scope="session")
def spark(java: None, python_of_spark: None) -> Iterator[SparkSession]:
    """Made before any client: it forks, and gRPC's threads do not survive that."""
    from tests.spark.sessions import session

    made = session("local[2,4]")
    from tests.spark.faults import FaultySource

    made.dataSource.register(FaultySource)
    yield made
    made.stop()


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    running = Servers(tmp_path)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str, str], None]:
    return record_property


@pytest.fixture
def wait_for() -> Callable[[Path], None]:
    def wait(path: Path) -> None:
        wait_until(path.exists, 60)

    return wait


@pytest.fixture(scope="module")
def shared_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker of servers that the tests of a module share."""
    from magnetar_spark.clients import close_all

    running = Servers(tmp_path_factory.mktemp("servers"))
    running.start()
    yield running.address
    close_all()
    running.stop()
