"""NumPy numbers as Arrow arrays, without a copy and without pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def number_array(values: Any) -> Any:
    """An Arrow array over the memory of a one-dimensional NumPy array of numbers.

    Unlike this function, `pa.array` imports pandas at its first call, which costs every new Python
    worker 0.4 s.
    """
    values = np.ascontiguousarray(values)
    arrow_type = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(arrow_type, len(values), [None, pa.py_buffer(values)])
