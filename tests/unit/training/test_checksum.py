"""The checksum that compares ranks."""

import numpy as np
import pytest
from checksum import checksum


def test_checksum_does_not_depend_on_the_order_given():
    one, two = ("a", np.arange(4, dtype=np.float32)), ("b", np.ones(2, dtype=np.int64))
    assert checksum([one, two]) == checksum([two, one])


def test_checksum_is_that_of_the_bytes_not_of_the_memory_layout():
    table = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert checksum([("a", table.T)]) == checksum([("a", table.T.copy())])


@pytest.mark.parametrize(
    "other",
    [
        [("b", np.zeros(4, dtype=np.float32))],
        [("a", np.zeros((2, 2), dtype=np.float32))],
        [("a", np.zeros(4, dtype=np.int32))],
        [("a", np.array([0, 0, 0, -0.0], dtype=np.float32))],
        [("a", np.array([0, 0, 0, 1e-45], dtype=np.float32))],
        [("a", np.zeros(2, dtype=np.float32)), ("a2", np.zeros(2, dtype=np.float32))],
    ],
    ids=["name", "shape", "type", "sign of zero", "least bit", "two arrays"],
)
def test_checksum_sees_every_difference(other):
    assert checksum(other) != checksum([("a", np.zeros(4, dtype=np.float32))])
