"""For all tests: what has to be set before gRPC is loaded."""

from __future__ import annotations

import os

# gRPC's handlers run in the child of each fork, although all that tests fork execute another
# program at once. While a channel is open somewhere, every fifth child dies in them, and Spark's
# session says JAVA_GATEWAY_EXITED.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
