"""Names that the examples in docstrings use without importing them."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    torch.manual_seed(0)
    doctest_namespace["torch"] = torch
