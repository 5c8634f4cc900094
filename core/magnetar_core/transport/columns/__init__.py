"""Commands in columns: the many commands of a kind that leave together are one message. Pure.

Protobuf makes an object for each message, and one for each name and TxnID in it. With small
commands these objects cost more than what is done with their contents. A column of integers is a
list that is made at once, and zip() makes the rows of all columns. A row is a plain tuple, and what
a handler gets for such a command, also for one that came alone, in a message of its own.
"""
