"""Values of records that can't be decoded. msgspec raises a different exception for each."""

from __future__ import annotations

UNDECODABLE = {
    "empty": b"",
    "cut off": b"{",
    "another shape": b"[1]",
    "not UTF-8": b'{"\xff":"\xff","app":"\xff","query":"\xff","life":"\xff","clocks":{"\xff":1},"shards":"\xff"}',
    "nested too deep": b'{"x":' + b"[" * 100_000,  # Python 3.14 has no limit here, and finds no end
}
"""Description → value. For most rows the last two raise UnicodeDecodeError and RecursionError in msgspec itself."""
