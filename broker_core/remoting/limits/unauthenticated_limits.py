"""Limits of peers that must authenticate and have not done so yet.

They may send small frames, and larger ones only if the header has an access key: the signature
covers the body, so the body must be read before it can be verified. Such bodies share a small
budget. Other large bodies are discarded, and their requests are refused as unsigned. Existing and
unknown accounts are treated alike, so that peers cannot probe for accounts.
"""

from __future__ import annotations

from functools import partial

from broker_core.codec.wire.frame_parser import SEND_HEADER_FACTOR, FrameParser
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.request_signature import ACCESS_KEY
from broker_core.config import RemotingLimits


def restrict(parser: FrameParser, limits: RemotingLimits) -> None:
    """Apply the limits to a connection."""
    parser.header_size_max = min(limits.header_size_max, limits.unauthenticated_frame_size_max)
    parser.send_header_size_max = parser.header_size_max
    parser.keeps_body = partial(_keeps_body, limits.unauthenticated_frame_size_max)


def unrestrict(parser: FrameParser, limits: RemotingLimits) -> None:
    """Lift the limits after authentication."""
    parser.header_size_max = limits.header_size_max
    parser.send_header_size_max = SEND_HEADER_FACTOR * limits.header_size_max
    parser.keeps_body = None


def _keeps_body(small: int, command: RemotingCommand, frame_size: int) -> bool:
    return frame_size <= small or ACCESS_KEY in command.ext
