"""The usual observers of a run."""
