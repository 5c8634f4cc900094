"""Write a software bill of materials of an installed server, as CycloneDX.

It has the packages that Magnetar's server needs with an object store, directly or not, by the exact
versions of constraints.txt, with the hashes and licenses that they state. Packages for development
alone are left out.
"""

import argparse
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from magnetar_core.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
# What the image of the server is installed with.
EXTRAS = ("object-store", "traces", "console")
SPECIFICATION = "1.6"


def needed() -> set[str]:
    """Names of all packages that the server's image has beside Magnetar, as canonical names."""
    waiting = [Requirement(f"magnetar[{','.join(EXTRAS)}]")]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, frozenset(one.extras)) in seen:
            continue
        seen.add((name, frozenset(one.extras)))
        wanted = [{"extra": extra} for extra in one.extras] or [{"extra": ""}]
        for text in metadata.requires(name) or ():
            further = Requirement(text)
            if further.marker is None or any(further.marker.evaluate(env) for env in wanted):
                waiting.append(further)
    return {name for name, _ in seen} - {"magnetar"}


def bill(version: str = VERSION) -> dict[str, Any]:
    """The bill of this version, with those components only that a server needs."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "environment", sys.executable),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
            *("--spec-version", SPECIFICATION, "--output-reproducible", "--output-file", "-"),
            # It would look for seconds at what is left out below. Tests validate what remains.
            "--no-validate",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    whole: dict[str, Any] = json.loads(done.stdout)
    wanted = needed()
    kept = [one for one in whole["components"] if canonicalize_name(one["name"]) in wanted]
    kept.sort(key=lambda one: str(one["name"]).lower())
    main = whole["metadata"]["component"]
    main["version"] = version
    refs = {main["bom-ref"], *(one["bom-ref"] for one in kept)}
    dependencies = []
    for one in whole["dependencies"]:
        if one["ref"] in refs:
            further = [ref for ref in one.get("dependsOn", ()) if ref in refs]
            dependencies.append({"ref": one["ref"], **({"dependsOn": further} if further else {})})
    return {**whole, "components": kept, "dependencies": dependencies}


def pinned() -> dict[str, str]:
    """The versions of constraints.txt, by canonical names."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.partition("==") for line in lines if "==" in line)
    return {canonicalize_name(name): version for name, _, version in pairs}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    found = bill()
    file.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{file}: {len(found['components'])} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
