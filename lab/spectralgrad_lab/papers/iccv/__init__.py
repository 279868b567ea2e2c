"""Why Approximate Matrix Square Root Outperforms Accurate SVD in Global Covariance Pooling? (ICCV 2021)."""
