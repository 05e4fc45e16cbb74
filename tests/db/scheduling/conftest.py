"""What the tests of the scheduling domain share."""

import pytest

from tests.factories.cluster import Site, make_site


@pytest.fixture
def site(db: None) -> Site:
    """An installation with a scheduler that the test turns by hand."""
    del db
    return make_site()
