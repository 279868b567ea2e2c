"""The derivatives of a few eigenpairs of large operators."""
