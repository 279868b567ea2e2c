"""A few eigenpairs of large operators, and the linear systems of their gradient."""
