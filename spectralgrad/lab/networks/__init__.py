"""The networks of the papers."""
