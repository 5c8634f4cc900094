"""Programs that do a task with one system's Python client, and print what they measured.

Those of peers run in an environment of their own, so they import nothing of Magnetar.
"""
