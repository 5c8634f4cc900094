"""Pages that are made from the code are fresh."""

from __future__ import annotations

import generate_pages
import pytest


@pytest.mark.parametrize("name", generate_pages.PAGES)
def test_a_page_says_what_the_code_says(name: str) -> None:
    made = generate_pages.PAGES[name]()
    assert (generate_pages.ROOT / name).read_text() == made, "run `make docs`"
