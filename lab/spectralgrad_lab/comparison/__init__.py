"""Many runs side by side: the grid, its results and what they come to."""
