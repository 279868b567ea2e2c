"""The project's own benchmark, on top of :mod:`spectralgrad.bench`."""
