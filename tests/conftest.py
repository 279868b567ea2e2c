"""Fixtures that the tests of the library share."""

import pytest

from spectralgrad.native import kernel, library


@pytest.fixture(params=["kernel", "without kernel"])
def both_ways(request, monkeypatch):
    """Run a test with the kernel and without it: either way has formulas of its own."""
    if request.param == "without kernel":
        monkeypatch.setattr(library, "switched_off", True)
    elif kernel() is None:
        pytest.skip("the native kernel was not built or is switched off")
