"""Keys and certificates, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """Create a self-signed certificate for 127.0.0.1, and its key; return the paths of both (PEM)."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
        *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)),
    )
    return certificate, key


def encrypted(key: Path, password: str, *cipher: str) -> Path:
    """Encrypt a key with a password; `cipher` are openssl's options, by default of a cipher that Java reads."""
    path = key.with_name(f"encrypted-{'-'.join(cipher).strip('-')}{key.name}")
    cipher = cipher or ("-v1", "PBE-SHA1-3DES")
    _openssl("pkcs8", "-topk8", *cipher, "-passout", f"pass:{password}", "-in", str(key), "-out", str(path))
    return path


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
