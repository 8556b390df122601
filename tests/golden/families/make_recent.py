"""Asks PyTorch transformers about the families of 2025 and 2026; see `make.py`.

    /tmp/torch311/bin/python -m tests.golden.families.make_recent

writes cases_recent.json and logits_recent.npz beside it, and the same with `_recent_awkward`, whose
sizes divide badly. `sparing.py` then takes fields from the latter (`make_awkward.py`).
"""

from tests.golden.families import make
from tests.golden.families.make_awkward import awkward
from tests.golden.families.recent_cases import RECENT, RECENT_SHAPES

if __name__ == "__main__":
    make.CASES.clear()
    make.CASES.update(RECENT | RECENT_SHAPES)
    make.main("_recent")
    make.CASES.clear()
    make.CASES.update(awkward(RECENT))
    make.main("_recent_awkward")
