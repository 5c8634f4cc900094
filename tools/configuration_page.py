"""docs/configuration.md, from the servers' settings: names, defaults, and their comments."""

import ast
import dataclasses
import inspect
import textwrap

from magnetar_broker.config import BrokerConfig
from magnetar_cli.json_schema import attributes_of
from magnetar_cli.servers.member_config import MemberConfig
from magnetar_cluster.host_settings import HostSettings
from magnetar_coordinator.config import CoordinatorConfig
from magnetar_core.config import ListenConfig
from magnetar_core.gates.access_file import AccessConfig
from magnetar_core.process.settings import names_of
from magnetar_core.recording.config import HistoryConfig
from magnetar_core.security.link_security import LinkConfig
from magnetar_core.traces.config import TracesConfig
from magnetar_kafka.config import KafkaConfig
from magnetar_storage.store_config import StoreConfig

HEAD = """\
# Configuration

A server takes each setting from its flags, else from the environment, else from a TOML file, else from the defaults
below. `magnetar config show` says what it would use and where that comes from, and `magnetar config show --toml` prints
a file to begin with. All of it is checked at the start: a name that does not exist, a value of another type, or values
that cannot work together end the server with a sentence that says what would.

```toml
# magnetar.toml
[broker]
batch_bytes_max = 1_048_576

[coordinator]
txn_timeout_ms_max = 3_600_000
```

```sh
export MAGNETAR_BATCH_BYTES_MAX=1048576
```

```sh
magnetar standalone --config magnetar.toml   # or MAGNETAR_CONFIG_FILE
```

Units are in the names. A setting is here if [operations](operations.md#when-to-change-a-setting) says when to change it,
or if it limits the memory, disk space or time that others may take. This page is generated: `make docs`.
"""


def page() -> str:
    parts = [HEAD]
    for title, kind in (
        ("[broker]", BrokerConfig),
        ("Kafka's clients: in [broker]", KafkaConfig),
        ("[coordinator]", CoordinatorConfig),
        ("Listening: in both sections", ListenConfig),
        ("Links to other servers: in both sections, and for the command line", LinkConfig),
        ("Access rights: in both sections", AccessConfig),
        ("Traces: in both sections", TracesConfig),
        ("Histories: in both sections", HistoryConfig),
        ("Where rows are kept: in both sections", StoreConfig),
        ("Shards that change their owner: in both sections", MemberConfig),
        ("How a server takes and keeps shards: in both sections", HostSettings),
    ):
        parts.append(f"\n## {title}\n\n| setting | default | meaning |\n|---|---|---|\n")
        meanings = comments_of(kind) | attributes_of(kind)
        for field in dataclasses.fields(kind):
            if field.name in names_of(kind):
                default = "" if field.default in ("", None) else f"`{shown(field.default)}`"
                parts.append(f"| `{field.name}` | {default} | {meanings.get(field.name, '')} |\n")
    return "".join(parts)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:_}" if isinstance(value, int) else str(value)


def comments_of(kind: type) -> dict[str, str]:
    """The comment lines right above each field."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef)
    found: dict[str, str] = {}
    for statement in node.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        above: list[str] = []
        at = statement.lineno - 2
        while lines[at].strip().startswith("#"):
            above.insert(0, lines[at].strip().lstrip("# "))
            at -= 1
        if above:
            found[statement.target.id] = " ".join(above)
    return found
