"""The derivatives of functions of Hermitian matrices, and the scales at which they are computed."""
