"""Every reason text a codec error can carry, written once for both codec backends.

The C module imports these constants, so the two backends cannot drift apart in wording.
"""

from __future__ import annotations

from typing import Final

# Column batches: faults of the whole batch (row -1).
BAD_COUNT: Final = "count is negative"
NO_QUEUES: Final = "batch has no queues"
BAD_TOPIC_LENGTH: Final = "topic must have 1 to 255 bytes"
BAD_TOPIC_NAME: Final = "topic has a character outside %|a-zA-Z0-9_-"
BAD_QUEUE_ID: Final = "queue id is negative or exceeds 32 bits"
BAD_HOST: Final = "host must have 8 or 20 bytes"
BAD_NUMBER: Final = "flag, sysFlag, reconsumeTimes or preparedOffset exceeds its width"
BAD_WIDTH: Final = "column offsets must be 4 or 8 bytes wide"
COLUMN_TOO_SHORT: Final = "column has fewer values than the batch has rows"

# Column batches: faults of one row.
BAD_QUEUE_INDEX: Final = "queue index outside the batch's queues"
BAD_OFFSETS: Final = "column offsets decrease or are outside the column's data"
TAGS_SEPARATOR: Final = "tags contain a property separator"
KEYS_SEPARATOR: Final = "keys contain a property separator"
PROPERTIES_UNSAFE: Final = "properties end like a damaged checksum property"
PROPERTIES_TOO_LONG: Final = "properties exceed 32767 bytes"
RECORD_TOO_LONG: Final = "record exceeds 2147483647 bytes"

# Records: structure.
HEADER_CUT: Final = "fewer than 8 bytes left"
BAD_MAGIC: Final = "magic is neither V1 nor V2"
SIZE_TOO_SMALL: Final = "record size is below the smallest record"
SIZE_PAST_LIMIT: Final = "record ends past the readable bytes"
NEGATIVE_BODY: Final = "body length is negative"
LENGTHS_DISAGREE: Final = "field lengths do not add up to the record size"
RECORD_TOPIC_LENGTH: Final = "topic length is outside its record version's range"
NEGATIVE_PROPERTIES: Final = "property length is negative"
RECORD_QUEUE_ID: Final = "queue id is negative"
RECORD_QUEUE_OFFSET: Final = "queue offset is negative"
PROPERTIES_TORN: Final = "property text ends in a zero byte"

# Records: identity and checksums.
BAD_POSITION: Final = "physical offset differs from the record's position"
CRC_TAIL_DAMAGED: Final = "checksum property is damaged"
RECORD_CRC: Final = "record checksum differs"
BODY_CRC: Final = "body checksum differs"
QUEUE_GAP: Final = "queue offset does not follow the previous one of its queue"

# Template runs.
BAD_QUEUE_REFERENCE: Final = "queue reference outside the declared queues"
BAD_ORDINAL: Final = "queue offset is not the record's ordinal in its queue"
RECORD_EXCEEDS_SEGMENT: Final = "record does not fit into an empty segment"
BODY_EXCEEDS_LIMIT: Final = "body exceeds the message size limit"
STORE_HOST_DISAGREES: Final = "store host length differs from the record's"

# Reads by queue unit.
PRE_BLANK_UNIT: Final = "queue unit is a pre-blank filler"
BAD_UNIT: Final = "queue unit has a negative position or no size"
NOT_IN_SPANS: Final = "record is not inside the given log pieces"
UNIT_SIZE_DISAGREES: Final = "record size differs from its queue unit"
QUEUE_OFFSET_DISAGREES: Final = "queue offset differs from the unit's number"
QUEUE_ID_DISAGREES: Final = "queue id differs from the queue read"
TOPIC_DISAGREES: Final = "topic differs from the queue read"

# Caller mistakes, raised as ValueError / OverflowError.
BAD_RANGE: Final = "range outside the buffer"
BAD_LOG_POSITION: Final = "log position is out of range"
BAD_FIRST_ROW: Final = "first row is outside the batch"
BAD_NEXT_OFFSETS: Final = "next offsets are fewer than the queues"
BAD_SEGMENT_SIZE: Final = "segment size must be positive"
BAD_UNITS: Final = "units are not a multiple of 20 bytes"
BAD_ENTRIES: Final = "index entries are not a multiple of 20 bytes"
BAD_INDEX_FILE: Final = "index file is smaller than its slots and entries"
COLUMN_TOO_LARGE: Final = "column exceeds 2147483647 bytes"
