"""Jobs on Spark with the source and the sink, for `magnetar pipeline ...` and spark-submit.

Each job is a module with a function that takes a Spark session, in a folder with what it alone
needs. Modules that several jobs need lie beside the folders. The programs are in the command line.
The decisions of a job are in a separate module without I/O.
"""
