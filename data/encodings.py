"""Byte order marks of UTF-8 and other encodings."""

from __future__ import annotations

import codecs

from convbert.common.errors import InputError

BYTE_ORDER_MARK = codecs.BOM_UTF8
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32 LE as 16


def reject_other_encodings(head: bytes, where: str) -> None:
    """Raises InputError if a file begins with the byte order mark of UTF-16 or UTF-32."""
    if head.startswith(_OTHER_MARKS):
        raise InputError(f"{where} must be UTF-8 text. Received: UTF-16 or UTF-32")
