"""An order service: every order is in the database and in the topic, or in neither.

    magnetar --broker 127.0.0.1:6650 topics create orders
    python examples/order_service.py sqlite:orders.db 7=tea 8=coffee
    python examples/order_service.py "postgresql://localhost/shop" 9=cake

The coordinator has to allow two-phase commit: MAGNETAR_TWO_PHASE_COMMIT_ENABLED=1. Kill it wherever
you like, and start it again: what was left undecided is settled first.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys

from magnetar import blocking
from magnetar.dual_write import DbApiStore, DualWriter

CREATE = "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, item VARCHAR(100))"


def open_store(url: str) -> DbApiStore:
    """Connect to "sqlite:FILE" or "postgresql://..."."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite":
        return DbApiStore(sqlite3.connect(rest), sqlite3.paramstyle)
    if kind == "postgresql":
        try:
            import psycopg
        except ImportError:
            sys.exit("PostgreSQL needs psycopg: pip install 'psycopg[binary]'")
        return DbApiStore(psycopg.connect(url), psycopg.paramstyle)
    sys.exit(f"{url!r} is not a database: use sqlite:FILE or postgresql://...")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("database", help="sqlite:FILE or postgresql://...")
    parser.add_argument("orders", nargs="*", metavar="NUMBER=ITEM")
    parser.add_argument("--broker", default="127.0.0.1:6650")
    parser.add_argument("--topic", default="orders")
    arguments = parser.parse_args()

    store = open_store(arguments.database)
    store.execute(CREATE)
    store.commit()
    mark = "?" if arguments.database.startswith("sqlite:") else "%s"
    insert = f"INSERT INTO orders VALUES ({mark}, {mark})"
    try:
        with blocking.connect(arguments.broker) as client:
            producer = client.transactional_producer("order-service", two_phase_commit=True)
            writer = DualWriter(producer, store)
            if writer.start():
                print("an order that was left undecided is committed")
            for order in arguments.orders:
                number, _, item = order.partition("=")
                with writer.unit() as unit:
                    unit.store.execute(insert, (int(number), item))
                    unit.send(arguments.topic, item.encode(), key=number.encode())
                print(f"order {number}: {item}")
    except Exception as error:  # Of Magnetar, or of either database.
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
