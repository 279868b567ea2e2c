"""Does this library work on this device? ``spectralgrad verify`` runs the checks and writes a report."""
