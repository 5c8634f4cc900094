"""Jobs on Spark around the source and the sink: `magnetar pipeline ...`, or spark-submit.

Each job is a module that makes what it is asked for from a Spark session, and a program of its own
(`python -m magnetar_spark.jobs.audit`, `spark-submit .../magnetar_spark/jobs/audit.py`). What it
decides lies in a pure module beside it.
"""
