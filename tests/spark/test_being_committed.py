"""A job that has to know of every commit that is under way does not go on with some of them."""

from __future__ import annotations

import pytest
from tests.system.processes import Servers

from magnetar import blocking
from magnetar_spark.jobs import being_committed
from magnetar_spark.jobs.failures import JobError

pytestmark = pytest.mark.chaos


def test_a_list_that_may_have_been_cut_is_refused(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with blocking.connect(servers.address) as client:
        assert being_committed.being_committed(client) == []
        # As many as a coordinator tells at once: none, of none that there are.
        monkeypatch.setattr(being_committed, "ROWS_MAX", 0)
        with pytest.raises(JobError, match="0 transactions are being committed"):
            being_committed.being_committed(client)
