"""Numbers from NumPy to Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_rmq.number_arrays import number_array


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint8, np.float64])
def test_the_result_equals_arrows_own_conversion(kind: type) -> None:
    values = np.arange(7).astype(kind)
    assert number_array(values).equals(pa.array(values))


def test_values_with_gaps_between_them() -> None:
    values = np.arange(10, dtype=np.int64)[::3]
    assert number_array(values).to_pylist() == [0, 3, 6, 9]


def test_no_values() -> None:
    assert number_array(np.empty(0, np.int64)).to_pylist() == []
