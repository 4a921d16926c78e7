"""Decoders of untrusted JSON and MessagePack, which raise one error for all invalid input.

msgspec raises DecodeError for malformed input, but UnicodeDecodeError for text that is not UTF-8 and RecursionError for
values that are nested too deep. A reader that catches only DecodeError would fail on such a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def json_decoder(kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> Callable[[bytes | str], T]:
    """Return a function that decodes JSON in UTF-8 to `kind`. `dec_hook` is msgspec's, for types that it does not know.

    It raises msgspec.DecodeError for all other input. Its subclass msgspec.ValidationError names the invalid field.
    """
    return _strict(msgspec.json.Decoder(kind, dec_hook=dec_hook))


def msgpack_decoder(kind: type[T], dec_hook: Callable[[type, Any], Any] | None = None) -> Callable[[bytes], T]:
    """Return a function that decodes MessagePack to `kind`. It raises the errors of `json_decoder`."""
    return _strict(msgspec.msgpack.Decoder(kind, dec_hook=dec_hook))


def _strict(decoder: Any) -> Callable[[Any], Any]:
    def decode(data: Any) -> Any:
        try:
            return decoder.decode(data)
        except UnicodeError as error:
            raise msgspec.DecodeError(f"it is not UTF-8: {error}") from error
        except RecursionError as error:
            raise msgspec.DecodeError("it is nested too deep") from error

    return decode
