"""Variables that Kubernetes gives to each pod for each Service of its namespace.

A Service called `magnetar` makes MAGNETAR_PORT=tcp://10.96.0.7:6650 and others of that name, which
look like settings. `enableServiceLinks: false` in a pod leaves them out.
Source: Kubernetes, Accessing the Service, Environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from magnetar_core.config import PREFIX

_LINK = re.compile(r"(tcp|udp|sctp)://\S+:\d+", re.IGNORECASE)
_PORT = "_PORT"


def service_links(environ: Mapping[str, str]) -> list[str]:
    """Return the names of all variables that come from Services whose names look like ours."""
    services = [
        name.removesuffix(_PORT)
        for name, text in environ.items()
        if name.startswith(PREFIX) and name.endswith(_PORT) and _LINK.fullmatch(text.strip())
    ]
    made = re.compile(r"(?:_SERVICE_(?:HOST|PORT(?:_\w+)?)|_PORT(?:_\d+_[A-Z]+(?:_\w+)?)?)")
    return [
        name
        for name in environ
        if any(name.startswith(one) and made.fullmatch(name[len(one) :]) for one in services)
    ]
