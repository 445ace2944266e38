"""Log lines as JSON objects, for programs that collect logs."""

from __future__ import annotations

import datetime
import json
import logging


class JsonLines(logging.Formatter):
    """One object per record: time, level, logger, message, and error if there was one."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        found = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["error"] = self.formatException(record.exc_info)
        return json.dumps(found, ensure_ascii=False)
