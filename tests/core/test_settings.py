"""Flags, environment, file and defaults, in this order; errors that say what to do."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from magnetar_core.config import NO_SETTING, InvalidConfig
from magnetar_core.process.settings import Sources, resolve, unknown_variables


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str = "default"
    limit: int = 1
    limit_max: int = 100
    ratio: float = 0.5
    enabled: bool = False
    port: int | None = None
    others: tuple[str, ...] = ()
    shard: int = field(default=0, metadata=NO_SETTING)

    def __post_init__(self) -> None:
        if self.limit > self.limit_max:
            raise InvalidConfig("limit must not exceed limit_max")


@dataclass(frozen=True, kw_only=True)
class Beside:
    host: str = ""


def load(tmp_path: Path, text: str, **environ: str) -> Sources:
    path = tmp_path / "magnetar.toml"
    path.write_text(text)
    return Sources.load(environ, ("one", "two"), path)


FILE = """
[one]
name = "file"
limit = 2
ratio = 1
enabled = true
"""


def test_flags_then_environment_then_file_then_defaults(tmp_path: Path) -> None:
    sources = load(
        tmp_path, FILE, MAGNETAR_LIMIT=" 7 ", MAGNETAR_PORT="6650", MAGNETAR_OTHERS="x", LIMIT="9"
    )
    resolved = resolve(Settings, "one", sources, name="flag", limit_max=None)
    assert resolved.settings == Settings(name="flag", limit=7, ratio=1.0, enabled=True, port=6650)
    assert dict(resolved.origins) == {
        "name": "flag",
        "limit": "environment",
        "limit_max": "default",
        "ratio": "file",
        "enabled": "file",
        "port": "environment",
    }
    assert resolve(Settings, "two", load(tmp_path, FILE)).settings == Settings()
    assert resolve(Settings, "one", Sources({})).settings == Settings()


def test_the_file_may_be_named_in_the_environment(tmp_path: Path) -> None:
    load(tmp_path, FILE)
    environ = {"MAGNETAR_CONFIG_FILE": str(tmp_path / "magnetar.toml")}
    assert resolve(Settings, "one", Sources.load(environ, ["one"])).settings.limit == 2


@pytest.mark.parametrize(
    ("environ", "complaint"),
    [
        ({"MAGNETAR_LIMIT": "many"}, "MAGNETAR_LIMIT is 'many'"),
        ({"MAGNETAR_RATIO": "x"}, "MAGNETAR_RATIO is 'x'"),
        ({"MAGNETAR_ENABLED": "perhaps"}, "MAGNETAR_ENABLED is 'perhaps'"),
        ({"MAGNETAR_LIMIT": "101"}, "limit must not exceed limit_max"),
    ],
)
def test_wrong_variables_are_named(environ: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        resolve(Settings, "one", Sources(environ))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[one]\nlimit = 'x'", r"limit in \[one\] of .*magnetar.toml is 'x'"),
        ("[one]\nlimi = 1", r"sets 'limi' in \[one\], .*did you mean limit"),
        ("[one]\nothers = ['a']", "sets 'others'"),
        ("[three]\nlimit = 1", r"has 'three' at its top; there are sections \[one\], \[two\]"),
        ("limit = 1", "has 'limit' at its top"),
        ("limit", "is not TOML"),
        ("[one]\nlimit = 200", "limit must not exceed limit_max"),
    ],
)
def test_wrong_files_are_refused_whole(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        resolve(Settings, "one", load(tmp_path, text))


def test_settings_may_share_a_section(tmp_path: Path) -> None:
    sources = load(tmp_path, FILE + "host = 'h'")
    assert resolve(Settings, "one", sources, beside=[Beside]).settings.limit == 2
    assert resolve(Beside, "one", sources, beside=[Settings]).settings.host == "h"
    with pytest.raises(InvalidConfig, match="'host'"):
        resolve(Settings, "one", sources)


def test_what_flags_alone_give_is_read_from_nowhere_else(tmp_path: Path) -> None:
    sources = Sources.load({"MAGNETAR_SHARD": "7"}, ["one"])
    assert resolve(Settings, "one", sources).settings.shard == 0
    assert resolve(Settings, "one", sources, shard=3).settings.shard == 3
    with pytest.raises(InvalidConfig, match="'shard'"):
        resolve(Settings, "one", load(tmp_path, "[one]\nshard = 7"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        Sources.load({}, ["one"], tmp_path / "none.toml")


def test_variables_that_are_nearly_settings_are_pointed_out() -> None:
    environ = {"MAGNETAR_LIMT_MAX": "1", "MAGNETAR_BROKER": "x", "MAGNETAR_LIMIT": "1"}
    (complaint,) = unknown_variables([Settings], environ)
    assert complaint == "MAGNETAR_LIMT_MAX is not a setting (did you mean MAGNETAR_LIMIT_MAX?)"


def test_what_has_its_defaults_is_read_without_pydantic() -> None:
    """Its import is a fifth of a server's start."""
    code = (
        "import sys; from magnetar_core.config import ListenConfig; "
        "from magnetar_core.process.settings import Sources, resolve; "
        "resolve(ListenConfig, 'broker', Sources({}), port=7_000); "
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
