"""Checks of Dockerfile, compose.yaml and compose.laptop.yaml that need no engine."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import sbom
from tests.deploy.services import DEPLOY, services_of

from magnetar_core.config import ListenConfig
from magnetar_core.process.descriptors import shares_of
from magnetar_core.server.grpc_server import CONNECTIONS_MAX
from magnetar_core.version import VERSION

ROOT = Path(__file__).parents[2]
SMALL, CLUSTER = "compose.laptop.yaml", "compose.yaml"
# All limits together, with every profile.
BYTES_MAX = {SMALL: 8 << 30, CLUSTER: 10 << 30}
SHARED = {
    *("spark-master", "spark-worker", "spark-connect", "prometheus", "grafana", "console"),
    "tools",
}
MEMBERS = {"broker-a", "broker-b", "broker-c", "broker-d", "coordinator-a", "coordinator-b"}
SERVICES = {
    SMALL: SHARED | {"broker", "coordinator-0", "coordinator-1", "demo"},
    CLUSTER: SHARED
    | MEMBERS
    | {"etcd-0", "etcd-1", "etcd-2", "object-server"}
    | {"producer", "job"},
}
# Started by their profiles only.
ON_DEMAND = {SMALL: {"demo", "tools"}, CLUSTER: {"tools", "producer", "job", "broker-d"}}
# They end by themselves, or other services do not wait for them.
UNASKED = {"grafana", "console", "demo", "tools", "producer", "job"}
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def both() -> dict[str, dict[str, Any]]:
    return {file: services_of(file) for file in (SMALL, CLUSTER)}


@pytest.fixture(params=[SMALL, CLUSTER])
def file(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def services(both: dict[str, dict[str, Any]], file: str) -> dict[str, Any]:
    return both[file]


def test_all_services_are_there(services: dict[str, Any], file: str) -> None:
    assert services.keys() == SERVICES[file]
    assert {name for name, one in services.items() if one.get("profiles")} == {
        "grafana",
        "console",
        *ON_DEMAND[file],
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


def test_the_limits_fit(services: dict[str, Any], file: str) -> None:
    limits = {name: int(service["mem_limit"]) for name, service in services.items()}
    assert sum(limits.values()) <= BYTES_MAX[file], limits


def test_servers_may_open_files_for_all_connections(services: dict[str, Any]) -> None:
    servers = [one for one in services.values() if one["image"].startswith("magnetar/server:")]
    assert servers
    for service in servers:
        files_max = int(service["ulimits"]["nofile"])
        assert shares_of(files_max).connections >= CONNECTIONS_MAX


def test_what_serves_comes_back_and_what_ends_does_not(services: dict[str, Any]) -> None:
    for name, service in services.items():
        if name not in {"demo", "tools"}:
            assert service["restart"] == "unless-stopped", name
        else:
            assert service["restart"] == "no", name


def test_images_are_named_by_version(services: dict[str, Any]) -> None:
    """A digest would be better, but images that are built here have none in advance."""
    for name, service in services.items():
        _, colon, tag = service["image"].rpartition(":")
        assert colon, name
        assert re.match(r"v?\d", tag), (name, service["image"])


def test_images_run_without_root(services: dict[str, Any]) -> None:
    """Prometheus and Grafana come with users of their own."""
    stages = {
        name: base for base, name in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)
    }
    for name, service in services.items():
        if "build" not in service:
            assert name in {"prometheus", "grafana"}
            continue
        stage = service["build"]["target"]
        while stage != "runtime":
            stage = stages[stage]
    of_runtime = DOCKERFILE.partition(" AS runtime\n")[2].partition("\nFROM ")[0]
    assert "\nUSER 10001:10001\n" in of_runtime
    assert "USER" not in DOCKERFILE.partition("\nUSER 10001:10001\n")[2]


def test_each_server_is_asked_for_its_health_and_starts_in_order(
    services: dict[str, Any], file: str
) -> None:
    assert re.search(
        r"^FROM runtime AS server\n(?:.+\n)+?HEALTHCHECK .*\\\n +CMD magnetar health --port",
        DOCKERFILE,
        re.M,
    )
    for name in SERVICES[file] - UNASKED:
        service = services[name]
        assert "healthcheck" in service or service["build"]["target"] == "server", name
    for name, service in services.items():
        for other, condition in service.get("depends_on", {}).items():
            assert condition["condition"] == "service_healthy", (name, other)


def test_servers_wait_for_what_they_need(both: dict[str, dict[str, Any]]) -> None:
    for name in ("coordinator-0", "coordinator-1", "spark-connect"):
        assert "broker" in both[SMALL][name]["depends_on"], name
    for name in MEMBERS:
        needed = both[CLUSTER][name]["depends_on"].keys()
        assert needed == {"etcd-0", "etcd-1", "etcd-2", "object-server"}, name


def test_members_of_the_cluster_are_where_they_say(both: dict[str, dict[str, Any]]) -> None:
    """An address that is wrong would be told to every client."""
    services = both[CLUSTER]
    for name in MEMBERS:
        service = services[name]
        kind, *options = service["command"]
        given = dict(zip(options[::2], options[1::2], strict=True))
        port = service["environment"]["MAGNETAR_PORT"]
        published, streams = service["ports"]
        assert kind == name.partition("-")[0]
        assert given == {
            "--name": name,
            "--advertise": f"{name}:{port}",
            "--external-address": f"127.0.0.1:{published['published']}",
        }
        assert str(published["target"]) == port
        _check_streams(service, streams)
    shared = [
        {key: value for key, value in services[name]["environment"].items() if "PORT" not in key}
        for name in MEMBERS
    ]
    assert all(one == shared[0] for one in shared)


def test_variables_of_containers_are_settings(services: dict[str, Any]) -> None:
    """The server would warn of an unknown variable, and use the default."""
    from magnetar_cli.servers.options import SECTIONS, settings_of, shared_settings
    from magnetar_core.membership import membership
    from magnetar_core.process.settings import unknown_variables

    every = [settings_of(section) for section in SECTIONS] + shared_settings()
    # Of the list of members, and of the command line.
    others = {*(membership.COORDINATORS_VARIABLE, membership.EXTERNAL_VARIABLE), "MAGNETAR_BROKER"}
    for name, service in services.items():
        given = {
            key: value for key, value in service.get("environment", {}).items() if key not in others
        }
        assert list(unknown_variables(every, given)) == [], name


def test_a_server_that_stops_has_time_to_hand_over(both: dict[str, dict[str, Any]]) -> None:
    """All handovers, and then the calls that are under way."""
    for name in MEMBERS:
        service = both[CLUSTER][name]
        assert service["stop_grace_period"] == "1m0s"
        leaving_ms = int(service["environment"]["MAGNETAR_LEAVING_MS_MAX"])
        assert leaving_ms + ListenConfig().stop_grace_ms + 10_000 <= 60_000


def test_members_agree_on_who_they_are(both: dict[str, dict[str, Any]]) -> None:
    """A list that differs would be refused, a port that differs never reached."""
    from magnetar_core.membership import membership

    services = both[SMALL]
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
        published, streams = service["ports"]
        assert str(published["target"]) == port
        assert one.external_address == f"127.0.0.1:{published['published']}"
        _check_streams(service, streams)


def _check_streams(service: dict[str, Any], published: dict[str, Any]) -> None:
    """A server tells its own port, so a program outside finds it only under the same number."""
    port = service["environment"]["MAGNETAR_STREAM_PORT"]
    assert port == str(published["target"]) == published["published"]
    assert published["host_ip"] == "127.0.0.1"


def test_versions_and_packages_are_those_of_the_project() -> None:
    defaults = dict(re.findall(r"^ARG (\w+)=(.+)$", DOCKERFILE, re.MULTILINE))
    settings = dict(
        re.findall(r"^(\w+)=(.*)$", (DEPLOY / "compose" / ".env").read_text(), re.MULTILINE)
    )
    makefile = dict(re.findall(r"^(\w+) := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert defaults["VERSION"] == settings["MAGNETAR_VERSION"] == VERSION
    assert defaults["BASE_IMAGE"] == settings["BASE_IMAGE"]
    for image in ("GRPCURL_IMAGE", "ETCD_IMAGE", "OBJECT_SERVER_IMAGE"):
        assert defaults[image] == settings[image]
    # docs/design/0009-owners.md says why.
    release = defaults["ETCD_IMAGE"].rpartition(":v")[2]
    assert tuple(map(int, release.split("."))) >= (3, 5, 13)
    assert defaults["FLIGHTS_PACKAGE"] == makefile["DEMO_PACKAGE"]
    assert defaults["FLIGHTS_SHA256"] == makefile["DEMO_PACKAGE_SHA256"]


def test_images_are_built_from_every_package_and_nothing_else() -> None:
    """A new top-level folder with a package must be let into the build."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    admitted = {line[1:] for line in ignored if line.startswith("!")}
    assert admitted >= {str(Path(package).parent) for package in packages}
    assert not admitted & {"tests", ".git", "data", ".demo"}


def test_the_files_that_services_mount_are_there(services: dict[str, Any]) -> None:
    for service in services.values():
        for volume in service.get("volumes", ()):
            if volume["type"] == "bind":
                assert Path(volume["source"]).is_dir(), volume
    dashboards = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DEPLOY / "grafana" / "dashboards" / Path(dashboards).name).is_file()


def test_the_server_of_the_image_has_what_its_settings_need() -> None:
    """An object store, spans and the console; and the bill of materials tells of all."""
    (extras, _) = re.findall(
        r"install-into-environment dependencies (.+)$", DOCKERFILE, re.MULTILINE
    )
    assert tuple(extras.split()) == sbom.EXTRAS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [one for name in extras.split() for one in project["optional-dependencies"][name]]
    for package in ("slatedb", "opentelemetry-sdk", "starlette"):
        assert any(one.startswith(package) for one in wanted)
    # As install.sh expands it.
    assert "magnetar[server]" in wanted
