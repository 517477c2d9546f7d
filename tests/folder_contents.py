"""Read the contents of a run folder without the fields that may differ between equal runs."""

import csv
import io
import json

import numpy as np

TIME_FIELDS = {
    "when",
    "started",
    "finished",
    "resumed",
    "seconds",
    "compile_seconds",
    "seconds_per_generation",
}
DEVICE_FIELDS = {"call_seconds", "processes_on_device", "devices", "device", "out"}


def contents(folder):
    """Map the relative path of each file to its content, without times and device fields."""
    return {
        str(file.relative_to(folder)): _content(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def _content(file):
    if file.suffix == ".json":
        return _timeless(json.loads(file.read_text()))
    if file.name == "metrics.csv":
        rows = csv.DictReader(io.StringIO(file.read_text()))
        return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
    if file.parent.name != "checkpoints":
        return file.read_bytes()
    if file.name == "log.bin":
        newest = max(file.parent.glob("*.npz"))
        with np.load(newest) as arrays:
            rows = np.frombuffer(file.read_bytes(), arrays["log"].dtype).copy()
        rows["metrics"]["seconds"] = 0
        return rows.tobytes()
    with np.load(file) as arrays:
        about = json.loads(str(arrays["about"]))
        del about["digest"]  # the digest covers times as well
        states = {name: arrays[name].tobytes() for name in arrays if name.startswith("state")}
        return about, arrays["log"].dtype, states


def _timeless(value):
    if isinstance(value, dict):
        return {
            name: _timeless(each)
            for name, each in value.items()
            if name not in TIME_FIELDS | DEVICE_FIELDS
        }
    return [_timeless(each) for each in value] if isinstance(value, list) else value
