"""Jobs on Spark around the source and the sink: `magnetar pipeline ...`, or spark-submit.

Each job is a module that makes what it is asked for from a Spark session; programs around it are in
the command line. What it decides lies in a module beside it that does
no I/O.
"""
