"""From LLVM IR to an object of the host: literals in the older spelling, symbols, sections, damage."""

from __future__ import annotations

import math
import struct

import pytest

from mlirstack.bindings import new_context
from mlirstack.errors import BundleError, StageError
from mlirstack.ir.text import parse_module
from mlirstack.passes.elf import ElfObject
from mlirstack.passes.llvm_ir import TranslateToLlvmIr, classic_spelling
from mlirstack.passes.native_code import CompileObject, Disassemble
from mlirstack.passes.runtime_libraries import missing, needed

pytestmark = pytest.mark.portable


@pytest.mark.parametrize(
    ("new", "value"),
    [
        ("float f0x3DCCCCCD", 0.1),
        ("float 1.500000e+00", 1.5),
        ("double -2.5", -2.5),
        ("float +inf", math.inf),
        ("double -inf", -math.inf),
    ],
)
def test_literals_in_classic_spelling(new: str, value: float) -> None:
    kind, literal = classic_spelling(f"  ret {new}\n").split()[1:]
    bits = struct.pack("<Q", int(literal, 16))  # a float is written as the double of the same value
    assert struct.unpack("<d", bits)[0] == pytest.approx(value, rel=1e-7)
    assert new.startswith(kind + " ")


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("half f0x3C00", "half 0xH3C00"),
        ("half 5.000000e-01", "half 0xH3800"),
        ("bfloat f0x3F80", "bfloat 0xR3F80"),
        ("float +nan(0x1)", "float 0x7FF8000020000000"),
        ("double +qnan", "double 0x7FF8000000000000"),
    ],
)
def test_narrow_floats_and_nans_in_classic_spelling(new: str, old: str) -> None:
    assert classic_spelling(f"  ret {new}\n") == f"  ret {old}\n"


def test_names_and_strings_are_not_literals() -> None:
    line = '@"float 1.5" = constant [9 x i8] c"float 2.5", !dbg !3 ; float 3.5\n'
    assert classic_spelling(line) == line


def test_an_op_without_translation_is_an_error_and_no_crash() -> None:
    module = parse_module(
        "func.func @f(%a: f32, %b: f32) -> f32 { %c = arith.addf %a, %b : f32 return %c : f32 }", new_context()
    )
    with pytest.raises(StageError, match=r"func\.func.*no translation"):
        TranslateToLlvmIr().translate(module)


LL = """
@text = constant [3 x i8] c"ab\\00"
declare double @cbrt(double)
define double @twice(double %x) {
  %y = call double @cbrt(double %x)
  %z = fadd double %y, %y
  ret double %z
}
"""


def test_object_and_its_parts() -> None:
    code = CompileObject().translate(LL)
    elf = ElfObject.parse(code.data)
    assert elf.undefined() == ("cbrt",)
    assert [f.name for f in elf.functions()] == ["twice"]
    assert elf.constant("text") == b"ab\0"
    listing = Disassemble().translate(code).text
    assert listing.startswith("twice:\n")
    assert "; cbrt" in listing
    assert code.data == CompileObject().translate(LL).data


def test_a_symbol_that_no_library_has_is_named_at_compile_time() -> None:
    with pytest.raises(StageError, match="no_such_function"):
        CompileObject().translate(
            "declare void @no_such_function()\ndefine void @f() { call void @no_such_function() ret void }"
        )


def test_llvm_says_what_is_wrong_with_the_text() -> None:
    with pytest.raises(StageError, match="LLVM does not accept"):
        CompileObject().translate("define void @f() { ret i32 0 }")


@pytest.mark.parametrize("data", [b"", b"not an object", b"\x7fELF\x02\x01" + b"\0" * 40])
def test_damaged_objects_are_refused(data: bytes) -> None:
    with pytest.raises(BundleError):
        ElfObject.parse(data)


def test_libraries_by_symbol() -> None:
    assert needed(["malloc", "expf"]) == ["libc.so.6", "libm.so.6"]
    assert missing(["expf", "no_such_function"]) == ["no_such_function"]


def test_kernels_stay_functions_of_their_own() -> None:
    text = 'attributes #0 = { noinline "frame-pointer"="all" }\nattributes #1 = { nocallback memory(none) }\n'
    assert classic_spelling(text) == "attributes #0 = { noinline }\n"
