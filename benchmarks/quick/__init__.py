"""Measures in a minute how a change affects the costs of the workloads: `make bench-quick`.

Rates by the clock do not tell the effect of a change: machines differ, and other programs take part
of this one. So these are compared with the kept figures:

- the processor time of client, broker and coordinator for each message or transaction, in
  proportion to that of a calibration pass in the same client process right before and after
  (`calibration.py`), and
- how workloads of the same round compare to each other (`figures.py` lists the ratios), which needs
  no calibration.

A round (`round.py`) is a client process with servers of its own, which does a fixed amount of each
workload (`work.py`) in turn. Rounds differ from each other in what a process gets once for all its
life, as its hash seed and its place in memory, so that their spread tells what such luck is worth.
Work that a server puts off counts for the workload that caused it: the next one begins when the
servers are idle.

`compare.py` says what moved, and `kept.py` has the file. The figures of different versions of
Python, of fewer rounds than three, and of smaller amounts of work are shown without a verdict.

`--profile` records where the time goes (`profiles.py`), and compares nothing.
"""
