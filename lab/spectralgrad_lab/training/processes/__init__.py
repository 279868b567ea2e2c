"""What surrounds a run: processes, threads, signals, memory."""
