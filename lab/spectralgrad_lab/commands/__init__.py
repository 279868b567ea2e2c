"""The commands of the lab: `spectralgrad train`, `compare` and `report`."""
