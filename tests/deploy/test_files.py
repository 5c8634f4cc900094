"""Checks of Dockerfile and compose.yaml that need no engine."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from magnetar_core.version import VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = shutil.which("docker-compose", path=str(Path(sys.executable).parent))
LAPTOP_BYTES = 8 << 30
LONG_RUNNING = {
    *("broker", "coordinator-0", "coordinator-1"),
    *("spark-master", "spark-worker", "spark-connect"),
    *("prometheus", "grafana"),
}
ON_DEMAND = {"demo", "tools"}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """compose.yaml as Compose itself understands it, with all profiles."""
    if COMPOSE is None:
        pytest.skip("docker-compose comes with the extra `dev` on Linux x86-64")
    done = subprocess.run(
        [COMPOSE, "--file", "compose.yaml", "--profile", "*", "config", "--format", "json"],
        cwd=DEPLOY / "compose",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr.lower(), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_all_services_are_there(services: dict[str, Any]) -> None:
    assert services.keys() == LONG_RUNNING | ON_DEMAND
    assert {name for name, one in services.items() if one.get("profiles")} == {
        "grafana",
        *ON_DEMAND,
    }


def test_no_service_may_more_than_it_needs(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "devices", "pid", "network_mode"} & {
            option for option, value in service.items() if value
        }, name
        for port in service.get("ports", ()):
            assert port["host_ip"] == "127.0.0.1", f"{name} is published beyond this machine"
        for volume in service.get("volumes", ()):
            # What is not data comes read-only from this folder.
            assert volume["type"] == "volume" or volume["read_only"], (name, volume)


def test_the_limits_fit_a_laptop(services: dict[str, Any]) -> None:
    limits = {name: int(service["mem_limit"]) for name, service in services.items()}
    assert sum(limits.values()) <= LAPTOP_BYTES, limits


def test_each_server_is_asked_for_its_health_and_starts_in_order(services: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    assert re.search(
        r"^FROM runtime AS server\n(?:.+\n)+?HEALTHCHECK .*\\\n +CMD magnetar health --port",
        dockerfile,
        re.M,
    )
    for name in LONG_RUNNING - {"grafana"}:
        service = services[name]
        assert "healthcheck" in service or service["build"]["target"] == "server", name
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy", (name, other)
    for name in ("coordinator-0", "coordinator-1", "spark-connect"):
        assert "broker" in services[name]["depends_on"], name


def test_members_agree_on_who_they_are(services: dict[str, Any]) -> None:
    """A list that differs would be refused, a port that differs never reached."""
    from magnetar_core import membership

    lists = {
        name: membership.from_environment(services[name]["environment"])
        for name in ("broker", "coordinator-0", "coordinator-1", "tools", "demo")
    }
    assert len(set(lists.values())) == 1
    (members,) = set(lists.values())
    for one in (*members.brokers, *members.coordinators):
        service_name, _, port = one.address.partition(":")
        service = services[service_name]
        assert service["environment"]["MAGNETAR_PORT"] == port
        assert service["command"][:3] == [one.name.partition("-")[0], "--name", one.name]
        (published,) = service["ports"]
        assert str(published["target"]) == port
        assert one.external_address == f"127.0.0.1:{published['published']}"


def test_versions_and_packages_are_those_of_the_project() -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    defaults = dict(re.findall(r"^ARG (\w+)=(.+)$", dockerfile, re.MULTILINE))
    settings = dict(
        re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose" / ".env").read_text(), re.MULTILINE)
    )
    makefile = dict(re.findall(r"^(\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert defaults["VERSION"] == settings["MAGNETAR_VERSION"] == VERSION
    assert defaults["BASE_IMAGE"] == settings["BASE_IMAGE"]
    assert defaults["GRPCURL_IMAGE"] == settings["GRPCURL_IMAGE"]
    assert defaults["FLIGHTS_PACKAGE"] == makefile["DEMO_PACKAGE"]
    assert defaults["FLIGHTS_SHA256"] == makefile["DEMO_PACKAGE_SHA256"]


def test_images_are_built_from_every_package_and_nothing_else() -> None:
    """A new top-level folder with a package must be let into the build."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        setuptools = tomllib.load(file)["tool"]["setuptools"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    admitted = {line[1:] for line in ignored if line.startswith("!")}
    assert admitted >= set(setuptools["packages"]["find"]["where"])
    assert not admitted & {"tests", ".git", "data", ".demo"}


def test_the_files_that_services_mount_are_there(services: dict[str, Any]) -> None:
    for service in services.values():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).is_dir(), volume
    dashboards = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / "dashboards" / Path(dashboards).name).is_file()


def test_the_server_of_the_image_can_use_an_object_store() -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    extra = re.findall(r"install-into-environment dependencies (\S+)$", dockerfile, re.MULTILINE)[0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["optional-dependencies"][extra]
    assert any(one.startswith("slatedb") for one in wanted)
    # As install.sh expands it.
    assert "magnetar[server]" in wanted
