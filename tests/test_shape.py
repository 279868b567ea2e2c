"""The shape of the code: calls do not become longer, and rooms not fuller, without somebody saying so.

``python tools/shape.py --write`` stores the figures of docs/results/shape.json anew.
"""

import json

import pytest

from spectralgrad.native import kernel
from tools import shape

from . import forked

STORED = json.loads(shape.STORED.read_text(encoding="utf-8"))
ENTRIES = 24  # of a room
CALLS = 2  # by which a walk may grow


@pytest.mark.skipif(kernel() is None, reason="without the kernel, calls take other ways")
def test_no_walk_grows_by_more_than_two_calls():
    done = forked.run(
        "-c", "import json; from tools import shape; print(json.dumps(shape.measured_walks()))", check=True
    )
    found = json.loads(done.stdout)  # of a new process: tests of before leave watchers behind
    assert set(found) == set(STORED["walks"])
    longer = {
        name: (before, now)
        for name, walk in STORED["walks"].items()
        for (before, _), (now, _) in zip(walk, found[name], strict=True)
        if now > before + CALLS
    }
    assert not longer


def test_no_room_has_more_than_24_entries_or_gets_fuller():
    limits = {name: max(ENTRIES, entries) for name, (entries, _) in STORED["rooms"].items()}
    assert not {name: entries for name, (entries, _) in shape.rooms().items() if entries > limits.get(name, ENTRIES)}


def test_no_more_functions_ask_than_before():
    assert not {name: who for name, who in shape.askers().items() if len(who) > STORED["askers"][name]}
