"""PDFium's functions called for many things at once: to wrap each argument takes too much time.

Handles are addresses here, plain integers, and results go into arrays. The loops run in C.
"""

import ctypes
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import cache
from itertools import repeat
from typing import Any

from documents.parsers.pdf.matrix import Matrix

PAGE, FORM = "FPDFPage", "FPDFFormObj"
"""What holds objects, as PDFium's functions begin for it."""
IS_PATH, IS_IMAGE, IS_FORM = 2, 3, 5
"""FPDF_PAGEOBJ_PATH, FPDF_PAGEOBJ_IMAGE, FPDF_PAGEOBJ_FORM."""
_NUMBERS = (ctypes.c_int, ctypes.c_ulong)
_BYTES = 4
"""Of each number that is written."""


@cache
def unwrapped(name: str) -> Callable[..., Any]:
    """The function of PDFium with this name; it takes addresses for handles and pointers."""
    import pypdfium2.raw as pdfium

    function = getattr(pdfium, name)
    types = (
        kind if kind in _NUMBERS else ctypes.c_void_p
        for kind in (function.restype, *function.argtypes)
    )
    # Giving up the interpreter's lock for each call would take longer than most of them.
    return ctypes.PYFUNCTYPE(*types)(ctypes.cast(function, ctypes.c_void_p).value or 0)


def address_of(handle: Any) -> int:
    """Where the thing of a handle lies."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def written(
    name: str, kind: str, handles: Collection[int], *more: Iterable[int], width: int, pointers: int
) -> "array[Any]":
    """What a function writes for these handles: `width` numbers of an array's `kind` for each.

    It takes a handle, the next of each of `more`, and so many `pointers`: to the first number of
    its own, or to each. Where it fails the numbers are 0.
    """
    step = width * _BYTES
    values = array(kind, bytes(len(handles) * step))
    start, length = values.buffer_info()
    end = start + length * _BYTES
    places = (range(start + at * _BYTES, end, step) for at in range(pointers))
    deque(map(unwrapped(name), handles, *more, *places), maxlen=0)
    return values


def counted(holder: int, kind: str) -> int:
    """How many objects a page or form has."""
    count: int = unwrapped(f"{kind}_CountObjects")(holder)
    return max(count, 0)


def objects(holder: int, kind: str) -> list[tuple[int, int]]:
    """The objects of a page or form with their types, in the order in which they are drawn."""
    places = range(counted(holder, kind))
    handles = list(map(unwrapped(f"{kind}_GetObject"), repeat(holder), places))
    return list(zip(handles, map(unwrapped("FPDFPageObj_GetType"), handles), strict=True))


def matrix_of(item: int) -> Matrix:
    """What takes an object's own space to that of its holder."""
    return Matrix(*written("FPDFPageObj_GetMatrix", "f", [item], width=6, pointers=1))
