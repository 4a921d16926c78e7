"""Tallystream's own consumer groups. Pure."""

from __future__ import annotations

AGGREGATOR, SHIPPER = "aggregator", "shipper"
ROLES = {"tallystream-aggregator": AGGREGATOR, "tallystream-shipper": SHIPPER}


def role(group: str) -> str:
    """Say what a group is; a prefix that keeps several systems apart changes nothing."""
    return next((what for name, what in ROLES.items() if group.endswith(name)), "consumer")
