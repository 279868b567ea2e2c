"""The files of a run: checkpoints, records, logs, locks."""
