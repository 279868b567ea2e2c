"""Makes ``torch`` available to the examples in docstrings, with a fixed random seed."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace):
    torch.manual_seed(0)
    doctest_namespace["torch"] = torch
