"""The functions of :mod:`mlirstack.passes.cuda.expansions` as MLIR text, with their types and constants left open.

``{t}`` is the type of the result; braces of the text itself are doubled, as ``str.format`` wants it.
"""

from __future__ import annotations

# math.ipowi of types {t}, by repeated squaring.  A negative exponent leaves 1 and -1 what they are, and of others 0.
INTEGER_POWER = """
func.func private @{name}(%base: {t}, %exponent: {t}) -> {t} {{
  %zero = arith.constant 0 : {t}
  %one = arith.constant 1 : {t}
  %minus_one = arith.constant -1 : {t}
  %power:3 = scf.while (%r = %one, %b = %base, %e = %exponent) : ({t}, {t}, {t}) -> ({t}, {t}, {t}) {{
    %more = arith.cmpi ne, %e, %zero : {t}
    scf.condition(%more) %r, %b, %e : {t}, {t}, {t}
  }} do {{
  ^bb0(%r: {t}, %b: {t}, %e: {t}):
    %bit = arith.andi %e, %one : {t}
    %odd = arith.cmpi ne, %bit, %zero : {t}
    %product = arith.muli %r, %b : {t}
    %next = arith.select %odd, %product, %r : {t}
    %square = arith.muli %b, %b : {t}
    %rest = arith.shrui %e, %one : {t}
    scf.yield %next, %square, %rest : {t}, {t}, {t}
  }}
  %is_one = arith.cmpi eq, %base, %one : {t}
  %is_minus_one = arith.cmpi eq, %base, %minus_one : {t}
  %unit = arith.ori %is_one, %is_minus_one : i1
  %negative = arith.cmpi slt, %exponent, %zero : {t}
  %fraction = arith.select %unit, %power#0, %zero : {t}
  %result = arith.select %negative, %fraction, %power#0 : {t}
  return %result : {t}
}}"""

IS_NORMAL = """
func.func private @{name}(%x: {t}) -> i1 {{
  %r = "llvm.intr.is.fpclass"(%x) <{{bit = 264 : i32}}> : ({t}) -> i1
  return %r : i1
}}"""

# f32 to an 8-bit float, to nearest even (after c10/util/Float8_*.h of torch 2.11): the bits of the magnitude are shifted by
# {drop}, {rebias} brings the exponent to the narrow bias and adds almost half of what is dropped, {odd} the rest of it.
# Subnormal results come out of an addition that shifts them into place; from {limit} on stands {overflow}.
TO_FLOAT8 = """
func.func private @{name}(%given: {source}) -> {t} {{
{widen}
  %sign_mask = arith.constant 0x80000000 : i32
  %limit = arith.constant {limit} : i32
  %smallest = arith.constant {smallest} : i32
  %magic_bits = arith.constant {magic} : i32
  %rebias = arith.constant {rebias} : i32
  %drop = arith.constant {drop} : i32
  %one = arith.constant 1 : i32
  %infinity = arith.constant 0x7F800000 : i32
  %nan = arith.constant 0x7F : i32
  %overflow = arith.constant {overflow} : i32
  %twenty_four = arith.constant 24 : i32
  %bits = arith.bitcast %x : f32 to i32
  %sign = arith.andi %bits, %sign_mask : i32
  %magnitude = arith.xori %bits, %sign : i32
  %value = arith.bitcast %magnitude : i32 to f32
  %magic = arith.bitcast %magic_bits : i32 to f32
  %shifted = arith.addf %value, %magic : f32
  %shifted_bits = arith.bitcast %shifted : f32 to i32
  %subnormal = arith.subi %shifted_bits, %magic_bits : i32
  %kept = arith.shrui %magnitude, %drop : i32
  %odd = arith.andi %kept, %one : i32
  %rebiased = arith.addi %magnitude, %rebias : i32
  %rounded = arith.addi %rebiased, %odd : i32
  %normal = arith.shrui %rounded, %drop : i32
  %is_subnormal = arith.cmpi ult, %magnitude, %smallest : i32
  %finite = arith.select %is_subnormal, %subnormal, %normal : i32
  %is_large = arith.cmpi uge, %magnitude, %limit : i32
  %bounded = arith.select %is_large, %overflow, %finite : i32
  %is_nan = arith.cmpi ugt, %magnitude, %infinity : i32
  %answer = arith.select %is_nan, %nan, %bounded : i32
  %sign_bit = arith.shrui %sign, %twenty_four : i32
  %signed = arith.ori %answer, %sign_bit : i32
  %byte = arith.trunci %signed : i32 to i8
  %r = arith.bitcast %byte : i8 to {t}
  return %r : {t}
}}"""
FLOAT8 = {
    "f8E4M3FN": {"limit": 1087 << 20, "smallest": 121 << 23, "magic": 141 << 23, "drop": 20, "overflow": 0x7F,
                 "rebias": ((7 - 127) << 23) + 0x7FFFF},
    "f8E5M2": {"limit": 143 << 23, "smallest": 113 << 23, "magic": 134 << 23, "drop": 21, "overflow": 0x7C,
               "rebias": ((15 - 127) << 23) + 0xFFFFF},
}  # fmt: skip

# The bits of f8E5M2 are the upper half of an f16; those of f8E4M3FN are an f16 that is 2^8 too small, but for NaN.
FROM_FLOAT8 = {
    "f8E5M2": """
func.func private @{name}(%x: f8E5M2) -> {t} {{
  %eight = arith.constant 8 : i16
  %byte = arith.bitcast %x : f8E5M2 to i8
  %bits = arith.extui %byte : i8 to i16
  %placed = arith.shli %bits, %eight : i16
  %half = arith.bitcast %placed : i16 to f16
  %wide = arith.extf %half : f16 to f32
{narrow}
  return %r : {t}
}}""",
    "f8E4M3FN": """
func.func private @{name}(%x: f8E4M3FN) -> {t} {{
  %magnitude_mask = arith.constant 0x7F : i16
  %sign_mask = arith.constant 0x80 : i16
  %seven = arith.constant 7 : i16
  %eight = arith.constant 8 : i16
  %scale = arith.constant 256.0 : f32
  %nan = arith.constant 0x7FC00000 : f32
  %byte = arith.bitcast %x : f8E4M3FN to i8
  %bits = arith.extui %byte : i8 to i16
  %magnitude = arith.andi %bits, %magnitude_mask : i16
  %sign = arith.andi %bits, %sign_mask : i16
  %placed = arith.shli %magnitude, %seven : i16
  %placed_sign = arith.shli %sign, %eight : i16
  %half_bits = arith.ori %placed, %placed_sign : i16
  %half = arith.bitcast %half_bits : i16 to f16
  %small = arith.extf %half : f16 to f32
  %value = arith.mulf %small, %scale : f32
  %is_nan = arith.cmpi eq, %magnitude, %magnitude_mask : i16
  %wide = arith.select %is_nan, %nan, %value : f32
{narrow}
  return %r : {t}
}}""",
}

# Shuffles move 32 bits: 16-bit values are widened, 64-bit values go in two halves.
SHUFFLE_16 = """
func.func private @{name}(%x: {t}, %offset: i32, %width: i32) -> ({t}, i1) {{
  %bits = arith.bitcast %x : {t} to i16
  %wide = arith.extui %bits : i16 to i32
  %moved, %valid = gpu.shuffle {mode} %wide, %offset, %width : i32
  %narrow = arith.trunci %moved : i32 to i16
  %r = arith.bitcast %narrow : i16 to {t}
  return %r, %valid : {t}, i1
}}"""
SHUFFLE_64 = """
func.func private @{name}(%x: {t}, %offset: i32, %width: i32) -> ({t}, i1) {{
  %half = arith.constant 32 : i64
  %bits = arith.bitcast %x : {t} to i64
  %low = arith.trunci %bits : i64 to i32
  %shifted = arith.shrui %bits, %half : i64
  %high = arith.trunci %shifted : i64 to i32
  %moved_low, %valid = gpu.shuffle {mode} %low, %offset, %width : i32
  %moved_high, %valid_high = gpu.shuffle {mode} %high, %offset, %width : i32
  %wide_low = arith.extui %moved_low : i32 to i64
  %wide_high = arith.extui %moved_high : i32 to i64
  %placed = arith.shli %wide_high, %half : i64
  %joined = arith.ori %placed, %wide_low : i64
  %r = arith.bitcast %joined : i64 to {t}
  return %r, %valid : {t}, i1
}}"""
