"""What the tests of the scheduling domain share."""

import pytest

from tests.factories.cluster import Site, make_site
from tests.factories.rivals import Rivals, make_rivals


@pytest.fixture
def site(db: None) -> Site:
    """An installation with a scheduler that the test turns by hand."""
    del db
    return make_site()


@pytest.fixture
def rivals(site: Site) -> Rivals:
    """Two departments at work on eight GPUs."""
    return make_rivals(site)
