"""Everything in this folder runs on a GPU, and is skipped with the reason where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlirstack.targets.cuda.driver import Driver
from mlirstack.targets.cuda.native import current_driver, unavailable

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.device)


@pytest.fixture(scope="session")
def driver() -> Driver:
    """The driver of the current device."""
    reason = unavailable()
    if reason:
        pytest.skip(reason)
    return current_driver()
