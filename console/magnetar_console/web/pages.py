"""Templates of the pages. They are frames: their content comes by events."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from magnetar_console.looks import view as views
from magnetar_console.looks.view import View
from magnetar_core.version import VERSION


class PageKind(NamedTuple):
    """A page.

    Attributes:
        path: where it is.
        title: its name for people, and in the navigation.
        section: the path of the page in the navigation that it belongs to.
    """

    path: str
    title: str
    section: str


PAGES: Final = {
    views.TRANSACTIONS: PageKind("/", "Transactions", "/"),
    views.TRANSACTION: PageKind("/transaction", "Transaction", "/"),
    views.TOPICS: PageKind("/topics", "Topics", "/topics"),
    views.TOPIC: PageKind("/topic", "Topic", "/topics"),
    views.GROUPS: PageKind("/groups", "Groups", "/groups"),
    views.GROUP: PageKind("/group", "Group", "/groups"),
    views.CLUSTER: PageKind("/cluster", "Cluster", "/cluster"),
    views.HANGING: PageKind("/hanging", "Hanging and two-phase", "/hanging"),
    views.CUTS: PageKind("/cuts", "Cuts", "/cuts"),
}
NAVIGATION: Final = [
    PAGES[kind]
    for kind in (
        *(views.TRANSACTIONS, views.TOPICS, views.GROUPS, views.CLUSTER),
        *(views.HANGING, views.CUTS),
    )
]


class Pages:
    """Renders pages.

    Args:
        brokers: the addresses of the cluster, for people.
        allow_actions: whether pages have buttons that change something.
        shares_certificate: whether servers are shown a certificate of the console.
    """

    def __init__(self, brokers: str, *, allow_actions: bool, shares_certificate: bool) -> None:
        self._templates = Environment(
            loader=PackageLoader("magnetar_console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._common = {
            "version": VERSION,
            "brokers": brokers,
            "allow_actions": allow_actions,
            "shares_certificate": shares_certificate,
            "navigation": NAVIGATION,
        }

    def view(self, view: View, *, page_token: str, signed_in: bool) -> str:
        """Render the page of a view."""
        page = PAGES[view.kind]
        parameters = {"view": view.kind}
        if view.name:
            parameters["id" if view.kind == views.TRANSACTION else "name"] = view.name
        return self._render(
            f"{view.kind}.html",
            page_token,
            title=f"{page.title} {view.name}" if view.name else page.title,
            section=page.section,
            name=view.name,
            events=f"/events?{urlencode(parameters)}",
            kind=view.kind,
            signed_in=signed_in,
        )

    def sign_in(self, *, page_token: str, problem: str, back: str) -> str:
        """Render the page on which a viewer signs in.

        Args:
            problem: why an attempt failed; empty: there was none.
            back: where to go next.
        """
        return self._render(
            "sign_in.html",
            page_token,
            title="Sign in",
            section="",
            events="",
            kind="",
            signed_in=False,
            problem=problem,
            back=back,
        )

    def problem(self, *, page_token: str, title: str, text: str) -> str:
        """Render a page that says why there is nothing else."""
        return self._render(
            "problem.html",
            page_token,
            title=title,
            section="",
            events="",
            kind="",
            signed_in=False,
            text=text,
        )

    def _render(self, template: str, page_token: str, **content: Any) -> str:
        return self._templates.get_template(template).render(
            **self._common, page_token=page_token, **content
        )
