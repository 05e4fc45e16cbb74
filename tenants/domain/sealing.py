"""Envelope encryption: what is sealed can be opened only with a key that no database holds.

Each value is encrypted by AES-256-GCM under a data key of its own, and the data key under one of
the installation's keys. So the keys of the installation are changed by wrapping the data keys anew,
without touching a value. Both layers are bound to a context, the row that the value belongs to:
moved to another row it does not open. Source: NIST SP 800-38D, 5.2.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
ID_LETTERS = 8


class UnusableKeyError(ValueError):
    """A key is not one; the text says which and how to make one, and not the key itself."""


class CannotOpenError(Exception):
    """What was sealed does not open: its key is not here, or somebody changed it."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value nobody can read without a key of the installation."""

    key_id: str
    wrapped_key: bytes
    ciphertext: bytes


class Keyring:
    """The keys of the installation; the first one seals, all of them open."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Know the keys by their ids."""
        self._keys = {key_id(key): key for key in keys}
        self.current = key_id(keys[0]) if keys else ""

    def __repr__(self) -> str:
        """Show ids only."""
        return f"Keyring({', '.join(self._keys)})"

    def __bool__(self) -> bool:
        """Tell whether there is a key at all."""
        return bool(self._keys)

    def seal(self, value: bytes, context: str) -> Sealed:
        """Encrypt a value under a new data key.

        Raises:
            CannotOpenError: there is no key.
        """
        data_key = AESGCM.generate_key(bit_length=8 * KEY_BYTES)
        ciphertext = _encrypt(data_key, value, context)
        return Sealed(self.current, self._wrap(data_key, context), ciphertext)

    def open(self, sealed: Sealed, context: str) -> bytes:
        """Decrypt a value.

        Raises:
            CannotOpenError: its key is not here, or it is not what was sealed for this context.
        """
        return _decrypt(self._unwrap(sealed, context), sealed.ciphertext, context)

    def rewrap(self, sealed: Sealed, context: str) -> Sealed:
        """Put the data key under the first key; the value stays as it is.

        Raises:
            CannotOpenError: as `open`.
        """
        wrapped = self._wrap(self._unwrap(sealed, context), context)
        return Sealed(self.current, wrapped, sealed.ciphertext)

    def _wrap(self, data_key: bytes, context: str) -> bytes:
        if not self._keys:
            raise CannotOpenError("no key: set TERRACE_SECRETS_KEY")
        return _encrypt(self._keys[self.current], data_key, context)

    def _unwrap(self, sealed: Sealed, context: str) -> bytes:
        key = self._keys.get(sealed.key_id)
        if key is None:
            known = ", ".join(self._keys) or "none"
            raise CannotOpenError(f"key {sealed.key_id} is not in TERRACE_SECRETS_KEY ({known})")
        return _decrypt(key, sealed.wrapped_key, context)


def new_key() -> str:
    """Make up a key as it is written in TERRACE_SECRETS_KEY."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")


def key_id(key: bytes) -> str:
    """Return what a key is called where it must not be shown."""
    return hashlib.sha256(b"terrace-secrets-key:" + key).hexdigest()[:ID_LETTERS]


def read_keys(text: str) -> list[bytes]:
    """Read keys that are separated by commas or spaces.

    Raises:
        UnusableKeyError: one of them is not 32 bytes in base64.
    """
    words = [word for word in re.split(r"[,\s]+", text) if word]
    keys = []
    for number, word in enumerate(words, 1):
        try:
            key = base64.b64decode(word.replace("-", "+").replace("_", "/"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise UnusableKeyError(
                f"key {number} of {len(words)} is not {KEY_BYTES} bytes in base64; make one with:"
                " python -c 'import base64, os;"
                " print(base64.urlsafe_b64encode(os.urandom(32)).decode())'"
            )
        keys.append(key)
    return keys


def _encrypt(key: bytes, value: bytes, context: str) -> bytes:
    nonce = secrets.token_bytes(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, value, context.encode())


def _decrypt(key: bytes, sealed: bytes, context: str) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context.encode())
    except (InvalidTag, ValueError) as error:
        raise CannotOpenError("it was changed, or belongs to another row") from error
