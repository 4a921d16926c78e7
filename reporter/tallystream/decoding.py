"""Decoders of JSON and MessagePack that come from outside, with one error for everything that is wrong with them.

msgspec raises DecodeError for malformed input, but UnicodeDecodeError for text that is not UTF-8 and RecursionError for
values that are nested too deep. A reader that catches DecodeError alone is stopped by one such row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def json_decoder(kind: type[T]) -> Callable[[bytes | str], T]:
    """Return a function that decodes JSON in UTF-8 to `kind`.

    It raises msgspec.DecodeError for every other input; msgspec.ValidationError, a subclass, names the wrong field.
    """
    return _strict(msgspec.json.Decoder(kind))


def msgpack_decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a function that decodes MessagePack to `kind`; it raises as that of `json_decoder`."""
    return _strict(msgspec.msgpack.Decoder(kind))


def _strict(decoder: Any) -> Callable[[Any], Any]:
    def decode(data: Any) -> Any:
        try:
            return decoder.decode(data)
        except UnicodeError as error:
            raise msgspec.DecodeError(f"it is not UTF-8: {error}") from error
        except RecursionError as error:
            raise msgspec.DecodeError("it is nested too deep") from error

    return decode
