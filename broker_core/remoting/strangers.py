"""What peers may send before they have shown an account, where accounts are needed.

Small frames, and larger ones only if their header names an account: the signature covers the body,
so it has to be read before anyone can tell. Such bodies share a small budget. The bodies of others
are thrown away as they come; their requests are then refused like any without a signature. Whether
the account exists makes no difference here, or the difference would tell which ones do.
"""

from __future__ import annotations

from functools import partial

from broker_core.codec.frame_parser import SEND_HEADER_FACTOR, FrameParser
from broker_core.codec.remoting_command import RemotingCommand
from broker_core.codec.request_signature import ACCESS_KEY
from broker_core.config import RemotingLimits


def restrict(parser: FrameParser, limits: RemotingLimits) -> None:
    """For a connection whose peer is not known."""
    parser.header_size_max = min(limits.header_size_max, limits.stranger_frame_size_max)
    parser.send_header_size_max = parser.header_size_max
    parser.keeps_body = partial(_keeps_body, limits.stranger_frame_size_max)


def unrestrict(parser: FrameParser, limits: RemotingLimits) -> None:
    """Now it is."""
    parser.header_size_max = limits.header_size_max
    parser.send_header_size_max = SEND_HEADER_FACTOR * limits.header_size_max
    parser.keeps_body = None


def _keeps_body(small: int, command: RemotingCommand, frame_size: int) -> bool:
    return frame_size <= small or ACCESS_KEY in command.ext
