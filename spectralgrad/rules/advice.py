"""Which method to use for which task, as ``spectralgrad info`` prints it."""

ADVICE = {
    "root, logarithm, power or function of a matrix": "exact, the default of matrix_sqrt and its relatives",
    "polar factor, nearest rotation": "exact, the default of polar",
    "eigenvectors or singular vectors themselves": "svd-pade, the default of eigh and svd",
    "whitening, covariance pooling (layers)": "the layer's default",
    "matrix products only, on an accelerator": "newton-schulz for roots, polar-express for polar",
    "results of a paper": "the method of that paper, in the list below",
}
