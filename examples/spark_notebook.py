# %% [markdown]
# # Magnetar on Spark, cell by cell
#
# Orders of a tea house go into a topic, Spark reads them with SQL, a streaming query makes bills of
# them, fails on the way, and goes on: each order gets one bill.
#
#     pip install 'magnetar[server,spark]'        # and Java 17 or later
#     magnetar standalone --data-dir ./data
#     python examples/spark_notebook.py           # or cell by cell, in an editor that knows `# %%`
#
# `MAGNETAR_BROKER` names another broker than the one on this machine. Each run has topics of its
# own, and can be repeated.

# %%
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.streaming.query import StreamingQuery

from magnetar import MagnetarError, blocking
from magnetar_spark import register

BROKER = os.environ.get("MAGNETAR_BROKER", "127.0.0.1:6650")
RUN = int(time.time())
ORDERS, BILLS, CUPS = f"orders-{RUN}", f"bills-{RUN}", f"cups-{RUN}"
CHECKPOINTS = Path(tempfile.mkdtemp(prefix="magnetar-notebook-"))

# %% [markdown]
# ## A session
#
# Make it before the first client: it forks, and a client's threads do not survive that.

# %%
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the Python that has the package
spark = (
    SparkSession.builder.master("local[2]")
    .appName("tea house")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
# One failure below is planned, and Spark would print all that it knows about it.
spark.sparkContext.setLogLevel("OFF")
# Spark finds the format by itself, except in an editable install.
register(spark)

# %% [markdown]
# ## Orders, in transactions
#
# Each day's orders are one transaction: all of them count, or none. The fourth day is aborted, as
# by any exception within `with`.

# %%
DAYS, ORDERS_A_DAY = 3, 40
TEAS = ["black", "green", "mint"]


def tea(number: int) -> str:
    """The last orders are of a tea that is new."""
    return "chai" if number >= DAYS * ORDERS_A_DAY - 5 else TEAS[number % 3]


try:
    client = blocking.connect(BROKER)
except MagnetarError as error:
    sys.exit(f"{error}: start a broker with `magnetar standalone`, or name one: MAGNETAR_BROKER")

for topic in (ORDERS, BILLS, CUPS):
    client.admin.topics.create(topic, partitions=2)


def sell(day: int) -> None:
    with client.transaction() as txn:
        for number in range(day * ORDERS_A_DAY, (day + 1) * ORDERS_A_DAY):
            order = {"number": number, "tea": tea(number), "cups": 1 + number % 2}
            customer = f"table {number % 7}"
            txn.enqueue(ORDERS, json.dumps(order).encode(), customer.encode())
        if day == DAYS:
            raise RuntimeError("the till broke")


for day in range(DAYS):
    sell(day)
try:
    sell(DAYS)
except RuntimeError as error:
    print(f"day {DAYS} does not count: {error}")

# %% [markdown]
# ## A batch read, with SQL
#
# A DataFrame of a topic has all that was committed when Spark first planned it. Aborted messages
# are not there; `txn_id` tells which messages came together.

# %%
SERVERS = {"magnetar.bootstrap.servers": BROKER}
ORDER = "number INT, tea STRING, cups INT"


def topic_now(topic: str) -> DataFrame:
    return spark.read.format("magnetar").options(**SERVERS).option("subscribe", topic).load()


topic_now(ORDERS).createOrReplaceTempView("messages")
spark.sql(f"""
    CREATE OR REPLACE TEMPORARY VIEW orders AS
    SELECT txn_id, cast(key AS string) AS customer, o.*
    FROM (SELECT *, from_json(cast(value AS string), '{ORDER}') AS o FROM messages)
""")
spark.sql("""
    SELECT tea, count(*) AS orders, sum(cups) AS cups, count(DISTINCT txn_id) AS transactions
    FROM orders GROUP BY tea ORDER BY tea
""").show()

# %% [markdown]
# ## From topic to topic, through a failure
#
# The query joins each order with its price, in batches of about 40. The price of chai is missing:
# it fails in the batch that has the first one.


# %%
def orders_as_they_come() -> DataFrame:
    return (
        spark.readStream.format("magnetar")
        .options(**SERVERS)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 40)
        .load()
    )


def bill_all(prices: dict[str, int]) -> StreamingQuery:
    """A query that makes a bill of each order that there is, and ends."""
    price_list = spark.createDataFrame(list(prices.items()), "tea STRING, cents INT")
    orders = orders_as_they_come().selectExpr(
        "key", f"from_json(cast(value AS string), '{ORDER}') AS o"
    )
    bills = (
        orders.select("key", "o.*")
        .join(price_list, "tea", "left")
        .selectExpr(
            "key",
            """to_json(struct(
                number,
                cups * coalesce(cents, raise_error(concat('no price for ', tea))) AS cents
            )) AS value""",
        )
    )
    return (
        bills.writeStream.format("magnetar")
        .options(**SERVERS)
        .option("topic", BILLS)
        .option("checkpointLocation", str(CHECKPOINTS / "bills"))
        .trigger(availableNow=True)
        .start()
    )


def show_bills(when: str) -> None:
    bills = topic_now(BILLS).selectExpr("from_json(cast(value AS string), 'number INT') AS b")
    ((all_of_them, different),) = bills.selectExpr("count(*)", "count(DISTINCT b.number)").collect()
    print(f"{when}: {all_of_them} bills of {different} orders")


def last_batch_of(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return progress.batchId if progress is not None else None


prices = {"black": 300, "green": 350, "mint": 320}
query = bill_all(prices)
try:
    query.awaitTermination()
except StreamingQueryException as error:
    reason = re.search(r"no price for \w+", str(error))
    done = last_batch_of(query)
    print(f"the query failed after batch {done}: {reason[0] if reason else error}")
show_bills("after the failure")

# %% [markdown]
# Of the batch that failed nothing is to be seen, though some of its tasks may have written: a batch
# is one transaction. With the price known, the same checkpoint goes on where it was.

# %%
prices["chai"] = 400
bill_all(prices).awaitTermination()
show_bills("after the restart")

# %% [markdown]
# ## foreachBatch
#
# What a function writes counts once when it is named: `txnAppId` says which work, `txnVersion`
# which piece of it.


# %%
def write_cups(frame: DataFrame, batch_id: int) -> None:
    (
        frame.selectExpr(f"from_json(cast(value AS string), '{ORDER}') AS o")
        .groupBy("o.tea")
        .agg(functions.sum("o.cups").alias("cups"))
        .selectExpr("tea AS key", "cast(cups AS string) AS value")
        .write.format("magnetar")
        .options(**SERVERS)
        .option("topic", CUPS)
        .option("txnAppId", CUPS)
        .option("txnVersion", batch_id)
        .mode("append")
        .save()
    )


def show_cups(when: str) -> None:
    cups = topic_now(CUPS).selectExpr("cast(cast(value AS string) AS int) AS cups")
    ((rows, total),) = cups.selectExpr("count(*)", "sum(cups)").collect()
    print(f"{when}: {total} cups in {rows} messages")


def count_cups() -> StreamingQuery:
    query = (
        orders_as_they_come()
        .writeStream.foreachBatch(write_cups)
        .option("checkpointLocation", str(CHECKPOINTS / "cups"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


counting = count_cups()
show_cups("counted")

# %% [markdown]
# Spark notes a batch as done after it has written it. Without that note, as after a crash just
# before it, a query writes its last batch again.

# %%
last_batch = last_batch_of(counting)
for note in (str(last_batch), f".{last_batch}.crc"):
    (CHECKPOINTS / "cups" / "commits" / note).unlink()
count_cups()
show_cups(f"batch {last_batch} written again")

# %% [markdown]
# ## How far behind
#
# A query's progress tells how many offsets it lags behind the ends of its partitions.

# %%
for progress in counting.recentProgress:
    ends = json.loads(progress.sources[0].latestOffset)
    behind = ends["@magnetar"]["maxOffsetsBehindLatest"]
    print(f"batch {progress.batchId}: {progress.numInputRows} orders, {behind} offsets behind")

# %% [markdown]
# ## The end
#
# The topics stay: `magnetar consume bills-... --until-end`.

# %%
client.close()
spark.stop()
