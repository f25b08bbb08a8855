"""Programs of several frameworks share files: copies, as a link that leaves job_source is not sent."""

from pathlib import Path

import pytest

TRAINING = Path(__file__).resolve().parents[3] / "training"


@pytest.mark.parametrize("name", ["checksum.py", "pictures.py", "rank_checkpoints.py"])
def test_copies_are_equal(name):
    first, *others = sorted(TRAINING.glob(f"*/{name}"))
    assert others and not any(path.is_symlink() for path in (first, *others))
    assert [path for path in others if path.read_bytes() != first.read_bytes()] == []
