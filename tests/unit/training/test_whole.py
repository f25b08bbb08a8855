"""Which parameters ranks compare: in auto parallel those that none of them has only a slice of."""

import numpy as np
import whole

SHAPES = {"conv.weight": (64, 3, 7, 7), "dense.weight": (10, 2048), "dense.bias": (10,)}


def arrays(**changed):
    return [(name, np.zeros(changed.get(name, shape), np.float32)) for name, shape in SHAPES.items()]


def test_data_parallel_has_no_slices():
    equal, slices = whole.parted(arrays(), SHAPES)
    assert [name for name, _ in equal] == list(SHAPES)
    assert slices == []


def test_slices_are_not_compared():
    equal, slices = whole.parted(arrays(**{"dense.weight": (5, 2048)}), SHAPES)
    assert [name for name, _ in equal] == ["conv.weight", "dense.bias"]
    assert [name for name, _ in slices] == ["dense.weight"]


def test_parameters_that_are_not_finite_are_named():
    given = arrays()
    given[0][1][1, 2] = np.nan
    given[2][1][3] = -np.inf
    assert whole.not_finite(given) == ["conv.weight", "dense.bias"]
    assert whole.not_finite(arrays()) == []
