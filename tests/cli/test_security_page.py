"""docs/security.md: the keys of proofs that it tells to make, and what it says of errors."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from magnetar_core.gates.gates import proof_keys_file

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def test_keys_of_proofs(tmp_path: Path) -> None:
    (maker,) = (one for one in blocks("sh") if "proof.keys" in one)
    subprocess.run(["bash", "-ec", maker], cwd=tmp_path, check=True, timeout=60)
    (text,) = [one for one in blocks("toml") if "txn_proof_keys_file" in one]
    (named,) = {section["txn_proof_keys_file"] for section in tomllib.loads(text).values()}
    keys = proof_keys_file(str(tmp_path / named), lambda: 0.0).content()
    assert list(keys.keys) == ["2026-11"]


def test_what_people_are_told_is_what_is_said() -> None:
    """The table of messages has them as they are in the code."""
    table = PAGE.partition("## When it does not work")[2].partition("## etcd")[0]
    said = re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)))
    core = Path(__file__).parents[2] / "core" / "magnetar_core" / "security"
    code = "".join(one.read_text() for one in core.glob("*.py"))
    code = re.sub(r'"\s+f?"', "", code)
    for one in said:
        for part in one.split("..."):
            assert part.strip() in code, one
