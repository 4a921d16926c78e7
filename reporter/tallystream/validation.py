"""Validation of names, tags, instance IDs and numbers against the limits of a record."""

from __future__ import annotations

from collections.abc import Container, Mapping
from math import fsum, inf, isfinite, nan
from operator import index
from string import ascii_letters, digits
from typing import Any

from tallystream.errors import ConfigError
from tallystream.record import MAX_EVERY_MS, MAX_NAME, MAX_TAG_NAME, MAX_TAG_VALUE, MAX_TAGS, MIN_EVERY_MS

MAX_INSTANCE_BYTES = 1024

LARGEST = 1e150
"""The largest magnitude of a value in a sum. Its square, and any sum of such values, is a finite float."""


def check_name(field: str, name: object) -> str:
    """Return `name`, which must be text of 1 to 512 characters.

    Raises:
        ConfigError: it is not, or it has a NUL character or no UTF-8 form. The message names `field`.
    """
    return _text(field, name, 1, MAX_NAME)


def header_token(field: str, token: str) -> str:
    """Return a token for an HTTP header, without white space around it.

    Raises:
        ConfigError: it has a character that no header can have. An HTTP client would show the token in its error.
    """
    token = token.strip()
    if not (token.isascii() and token.isprintable()):
        raise ConfigError(field, "***", "give the token alone: it has a line break or another special character")
    return token


def require_mapping(metric: str, tags: object) -> None:
    """Check that tags are a mapping or None.

    Raises:
        ConfigError: they are not.
    """
    if tags is not None and not isinstance(tags, Mapping):
        raise ConfigError(f"tags of {metric!r}", tags, 'give a mapping, such as {"topic": "orders"}')


def check_tags(metric: str, tags: Mapping[str, str] | None) -> dict[str, str]:
    """Return a copy of the tags, sorted by name.

    Raises:
        ConfigError: they are not a mapping, there are more than 32, or a name or value is not text or out of bounds.
    """
    require_mapping(metric, tags)
    if not tags:
        return {}
    if len(tags) > MAX_TAGS:
        raise ConfigError(f"tags of {metric!r}", f"{len(tags)} tags", f"use {MAX_TAGS} at most")
    checked = {
        _text(f"a tag's name of {metric!r}", name, 1, MAX_TAG_NAME): _text(
            f"the tag {name!r} of {metric!r}", value, 0, MAX_TAG_VALUE
        )
        for name, value in tags.items()
    }
    return dict(sorted(checked.items()))


def label(name: object, tags: Mapping[str, str]) -> str:
    """Return name and tags in the form used in messages, to distinguish metrics with the same name."""
    return f"{name!r} {dict(tags)}" if tags else repr(name)


_PREFIX = "tag_"


def free(name: str, reserved: Container[str]) -> str:
    """Return the name of a user's tag beside those of Tallystream: a reserved name gets a prefix.

    A reserved name that already has the prefix (tag_app) gets another one, so names stay distinct.
    """
    bare = name
    while bare.startswith(_PREFIX):
        bare = bare[len(_PREFIX) :]
    return _PREFIX + name if bare in reserved else name


ENABLED = "TALLYSTREAM_ENABLED"


def is_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether reporters to Kafka report: unless TALLYSTREAM_ENABLED is 0 or false.

    Raises:
        ConfigError: the variable has another value than 0, 1, false and true.
    """
    text = environment.get(ENABLED) or "1"
    if text.lower() not in ("0", "1", "false", "true"):
        raise ConfigError(ENABLED, text, "set it to 0 to switch reporting off, or to 1")
    return text.lower() in ("1", "true")


def check_instance(instance: object) -> str:
    """Return the instance ID, which is the key of every record.

    Raises:
        ConfigError: it is empty, not text, or longer than 1024 bytes of UTF-8, or has a NUL character.
    """
    text = _text("instance", instance, 1, MAX_INSTANCE_BYTES)
    if len(text.encode()) > MAX_INSTANCE_BYTES:
        raise ConfigError("instance", text[:40] + "…", f"use at most {MAX_INSTANCE_BYTES} bytes of UTF-8")
    return text


MAX_TOPIC = 249
_TOPIC_CHARACTERS = frozenset(ascii_letters + digits + "._-")


def check_topic(topic: object) -> str:
    """Return the name of a topic.

    Raises:
        ConfigError: Kafka has no topic of this name.
    """
    text = _text("topic", topic, 1, MAX_TOPIC)
    if text in {".", ".."} or not _TOPIC_CHARACTERS.issuperset(text):
        raise ConfigError("topic", text, "use only the characters of Kafka's topics: a-z, A-Z, 0-9, point, _ and -")
    return text


def check_interval(seconds: Any) -> float:
    """Return the seconds between two reports.

    Raises:
        ConfigError: they are not a number, or out of bounds.
    """
    try:
        number = as_number(seconds)
    except TypeError:
        number = 0
    if not MIN_EVERY_MS <= number * 1000 <= MAX_EVERY_MS:
        raise ConfigError("interval", seconds, f"use {MIN_EVERY_MS / 1000} to {MAX_EVERY_MS // 1000} seconds")
    return number


def check_options(options: object, field: str = "options") -> dict[str, Any]:
    """Return a copy of the options of librdkafka. The message of the error has no option, since it may be a secret.

    Raises:
        ConfigError: they are neither None nor a mapping with the names of options.
    """
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(name, str) for name in options):
        raise ConfigError(field, "***", 'give a mapping with texts as names, such as {"client.id": "orders"}')
    return dict(options)


def _text(field: str, value: object, min_length: int, max_length: int) -> str:
    if value.__class__ is not str:
        if not isinstance(value, str):
            raise ConfigError(field, value, "use a text (str)")
        value = str.__str__(value)  # the encoder of records refuses other types, such as numpy's
    if not min_length <= len(value) <= max_length:
        shown = value if len(value) <= 40 else value[:40] + "…"
        raise ConfigError(field, shown, f"use {min_length} to {max_length} characters, not {len(value)}")
    if "\0" in value:
        raise ConfigError(field, value, "remove the NUL character; no store accepts it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConfigError(field, value, "remove the lone surrogate; UTF-8 can't encode it") from None
    return value


def as_number(value: float) -> float:
    """Return an integer type as an int, any other real number as a float: also numpy's, Decimal, Fraction, bool.

    The encoder of records supports no other types: one such value would prevent all metrics from being reported.

    Raises:
        TypeError: it is not a real number.
    """
    if value.__class__ is float or value.__class__ is int:
        return value
    try:
        return int(index(value))  # type: ignore[arg-type]  # only integers have __index__
    except TypeError:
        pass
    try:
        return fsum((value,))  # float() would accept text too
    except OverflowError:  # a Fraction beyond all floats
        return inf if value > 0 else -inf
    except ValueError:  # a signaling NaN of Decimal
        return nan
    except TypeError:
        raise TypeError(f"{value!r:.100} is not a number: give an int, a float, or another real number.") from None


def as_count(value: int) -> int:
    """Return a whole number of any type but float as an int: also numpy's, a bool, or a Decimal without a fraction.

    Raises:
        TypeError: it is not a whole number, or a float, which need not be one the next time.
    """
    try:
        return int(index(value))
    except TypeError:
        number = as_number(value)
    if isinstance(value, float) or not isfinite(number) or int(value) != value:
        raise TypeError(f"{value!r:.100} is not a whole number: give an int.")
    return int(value)
