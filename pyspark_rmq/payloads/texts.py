"""`valueFormat=string`: bodies as texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from pyspark_rmq.payloads.bad_records import BadRow, Decoded


class TextDecoder:
    """Bodies that are UTF-8; others are bad."""

    def decode(self, bodies: Any) -> Decoded:
        """The text of each body."""
        try:
            return Decoded(bodies.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        values: list[str | None] = []
        bad = []
        for row, body in enumerate(bodies.to_pylist()):
            try:
                values.append(body.decode())
            except UnicodeDecodeError as error:
                values.append(None)
                bad.append(BadRow(row, f"not UTF-8 at byte {error.start}"))
        return Decoded(pa.array(values, pa.string()), bad)
