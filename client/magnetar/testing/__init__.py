"""A cluster of real servers in the memory of a process, for tests of programs.

    def test_orders(magnetar_server):
        program = Orders(magnetar_server.address)

`pip install 'magnetar[testing]'` brings what the servers need, and pytest has the fixtures then.
"""

try:
    import prometheus_client as _needed
except ImportError as error:
    raise ImportError(
        "magnetar.testing needs what servers need: pip install 'magnetar[testing]'"
    ) from error

from magnetar.testing.commands import CommandName
from magnetar.testing.faults import Fault
from magnetar.testing.server import Server

del _needed

__all__ = ["CommandName", "Fault", "Server"]
