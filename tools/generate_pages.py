"""Write the files that are made from the code: pages of docs/, dashboards, magnetar.blocking.

--check: are they fresh?
"""

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import access_page
import blocking_facade
import cluster_dashboard_page
import configuration_page
import dashboard_page
import errors_page
import kafka_page
import metrics_page
import states_page

ROOT = Path(__file__).resolve().parent.parent
PAGES: dict[str, Callable[[], str]] = {
    "docs/access.md": access_page.page,
    "docs/configuration.md": configuration_page.page,
    "docs/errors.md": errors_page.page,
    "docs/kafka_requests.md": kafka_page.page,
    "docs/protocol/states.md": states_page.page,
    "docs/metrics.md": metrics_page.page,
    "deploy/grafana/dashboards/transactions.json": dashboard_page.page,
    "deploy/grafana/dashboards/cluster.json": cluster_dashboard_page.page,
    **{
        f"{blocking_facade.FOLDER}/{name}.py": partial(blocking_facade.module, name)
        for name in blocking_facade.MODULES
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a page is not fresh")
    check = parser.parse_args().check
    stale = []
    for name, page in PAGES.items():
        path = ROOT / name
        if not check:
            path.write_text(page())
        elif not path.exists() or path.read_text() != page():
            stale.append(name)
    if stale:
        print(f"{', '.join(stale)} does not match the code: run `make docs`.", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
