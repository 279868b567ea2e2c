"""The configuration of a run: fields, values, flags, presets."""
