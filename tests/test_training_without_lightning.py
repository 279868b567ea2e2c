"""Where Lightning is missing its callback says so."""

import pytest

import spectralgrad as sg
from spectralgrad.training import lightning


def test_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setattr(lightning, "Callback", None)
    with pytest.raises(sg.SpectralError, match="pip install lightning"):
        lightning.HybridSwitchCallback()
