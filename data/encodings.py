"""How files begin that are text in UTF-8, or in another encoding."""

from __future__ import annotations

import codecs

from common.errors import InputError

BYTE_ORDER_MARK = codecs.BOM_UTF8
# The longer marks first: UTF-16's of one byte order begins UTF-32's.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}


def marked_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32, where the first bytes of a file are the byte order mark of one."""
    return next((name for mark, name in _OTHER_MARKS.items() if head.startswith(mark)), None)


def reject_other_encodings(head: bytes, where: str) -> None:
    """Raises InputError where a file begins with the byte order mark of UTF-16 or UTF-32."""
    if encoding := marked_encoding(head):
        raise InputError(
            f"{where} must be UTF-8 text; convert it, for example with "
            f"`iconv -f {encoding} -t UTF-8`. Received: the byte order mark of {encoding}"
        )
