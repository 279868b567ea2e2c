"""Decompositions: operators, the choice of the solver, LAPACK, and fallbacks."""
