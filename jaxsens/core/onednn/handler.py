"""XLA calls oneDNN: a handler of XLA's foreign function interface, as machine code.

A handler written in Python would run signal handlers of Python in the middle of XLA's program, and
Ctrl-C there would end the call with a result that nobody computed. So it is written in LLVM's
language and compiled by llvmlite, which is the package numba compiles with.

XLA hands a handler one structure with the addresses of all arguments and results (`c_api.h`, below
`jax.ffi.include_dir()`, is its definition; the offsets in bytes below are its). What to do with
them stands in a table at the number that is an attribute of the call: a `Plan`. The number is made
from what the plan does, so that a compiled program that outlives the process means the same in the
next one, which puts the plan into its own table as it traces the model.

Assumption: version 0.1 of the interface or a later one that still serves it, on a machine of 64
bits.
"""

import ctypes
import functools
import zlib
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from typing import Any

import jax
import numpy as np

from jaxsens.core.onednn import library
from jaxsens.core.onednn.plans import Plan

NAME = "jaxsens_onednn"

_TABLE_SIZE = 1 << 20

_CODE = """
@message = internal constant [14 x i8] c"oneDNN failed\\00"

define ptr @handle(ptr %frame) {{
entry:
  %extension.at = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extension.at
  %is_alone = icmp eq ptr %extension, null
  br i1 %is_alone, label %run, label %extended

extended:  ; XLA asks for the version that the handler was written for
  %type.at = getelementptr i8, ptr %extension, i64 8
  %type = load i32, ptr %type.at
  %is_metadata = icmp eq i32 %type, 1
  br i1 %is_metadata, label %metadata, label %run

metadata:
  %metadata.at = getelementptr i8, ptr %extension, i64 24
  %metadata.of = load ptr, ptr %metadata.at
  %major.at = getelementptr i8, ptr %metadata.of, i64 24
  store i32 0, ptr %major.at
  %minor.at = getelementptr i8, ptr %metadata.of, i64 28
  store i32 1, ptr %minor.at
  ret ptr null

run:
  %arguments.at = getelementptr i8, ptr %frame, i64 72
  %arguments = load ptr, ptr %arguments.at
  %results.at = getelementptr i8, ptr %frame, i64 112
  %results = load ptr, ptr %results.at
  %attributes.at = getelementptr i8, ptr %frame, i64 160
  %attributes = load ptr, ptr %attributes.at
  %attribute = load ptr, ptr %attributes
  %number.at = getelementptr i8, ptr %attribute, i64 8
  %number.of = load ptr, ptr %number.at
  %number = load i64, ptr %number.of
  %plan.at = getelementptr ptr, ptr inttoptr (i64 {table} to ptr), i64 %number
  %plan = load ptr, ptr %plan.at
  %is_unknown = icmp eq ptr %plan, null
  br i1 %is_unknown, label %failed, label %found

found:  ; one at a time, since each takes all cores
  call i32 inttoptr (i64 {lock} to ptr)(ptr inttoptr (i64 {mutex} to ptr))
  %first.to = load ptr, ptr %plan
  %first = load ptr, ptr %arguments
  %set.first = call i32 @set(ptr %first.to, ptr %first)
  %second.at = getelementptr ptr, ptr %arguments, i64 1
  %second = load ptr, ptr %second.at
  %second.to.at = getelementptr ptr, ptr %plan, i64 1
  %second.to = load ptr, ptr %second.to.at
  %set.second = call i32 @set(ptr %second.to, ptr %second)
  %result = load ptr, ptr %results
  %result.to.at = getelementptr ptr, ptr %plan, i64 2
  %result.to = load ptr, ptr %result.to.at
  %set.result = call i32 @set(ptr %result.to, ptr %result)
  %set.some = or i32 %set.first, %set.second
  %set.all = or i32 %set.some, %set.result
  %num.at = getelementptr i64, ptr %plan, i64 3
  %num = load i64, ptr %num.at
  br label %step

step:  ; a primitive, how many arguments it takes, and these
  %index = phi i64 [ 0, %found ], [ %next, %step ]
  %status = phi i32 [ %set.all, %found ], [ %status.next, %step ]
  %offset = mul i64 %index, 3
  %place = add i64 %offset, 4
  %primitive.at = getelementptr ptr, ptr %plan, i64 %place
  %primitive = load ptr, ptr %primitive.at
  %count.at = getelementptr i8, ptr %primitive.at, i64 8
  %count = load i32, ptr %count.at
  %given.at = getelementptr i8, ptr %primitive.at, i64 16
  %given = load ptr, ptr %given.at
  %stream = inttoptr i64 {stream} to ptr
  %ended = call i32 inttoptr (i64 {execute} to ptr)(
      ptr %primitive, ptr %stream, i32 %count, ptr %given)
  %status.next = or i32 %status, %ended
  %next = add i64 %index, 1
  %is_more = icmp ult i64 %next, %num
  br i1 %is_more, label %step, label %done

done:
  %waited = call i32 inttoptr (i64 {wait} to ptr)(ptr %stream)
  call i32 inttoptr (i64 {unlock} to ptr)(ptr inttoptr (i64 {mutex} to ptr))
  %status.all = or i32 %status.next, %waited
  %is_right = icmp eq i32 %status.all, 0
  br i1 %is_right, label %right, label %failed

right:
  ret ptr null

failed:
  %error = alloca [4 x i64]
  store i64 32, ptr %error
  %error.extension = getelementptr i8, ptr %error, i64 8
  store ptr null, ptr %error.extension
  %error.message = getelementptr i8, ptr %error, i64 16
  store ptr @message, ptr %error.message
  %error.code = getelementptr i8, ptr %error, i64 24
  store i32 13, ptr %error.code
  %api.at = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %api.at
  %create.at = getelementptr i8, ptr %api, i64 48
  %create = load ptr, ptr %create.at
  %made = call ptr %create(ptr %error)
  ret ptr %made
}}

define internal i32 @set(ptr %memory, ptr %buffer) {{
  %data.at = getelementptr i8, ptr %buffer, i64 24
  %data = load ptr, ptr %data.at
  %status = call i32 inttoptr (i64 {set_data} to ptr)(ptr %memory, ptr %data)
  ret i32 %status
}}
"""


#: Addresses of plans, which are kept as long as the process lives.
_table = (c_void_p * _TABLE_SIZE)()
_mutex = ctypes.create_string_buffer(64)  # zeros are what PTHREAD_MUTEX_INITIALIZER is on Linux
_plans: dict[int, tuple[str, Plan, ctypes.Array]] = {}


def call(
    what: str, make: Callable[[], Plan], result: jax.ShapeDtypeStruct, *arguments: jax.Array
) -> jax.Array:
    """The result of a plan for two arrays.

    Args:
      what: names the plan; the same words, the same plan.
      make: makes it, when it is first called.
      result: its shape and dtype.
      arguments: the two arrays.
    """
    _register()
    number = _number(what)
    if number not in _plans:
        plan = make()
        words = _words(plan)
        _plans[number] = what, plan, words
        _table[number] = ctypes.addressof(words)
    ffi_call = jax.ffi.ffi_call(NAME, result, vmap_method="sequential")
    return ffi_call(*arguments, number=np.int64(number))


def _number(what: str) -> int:
    """Where in the table a plan stands.

    >>> _number("one plan") == _number("one plan")
    True
    """
    number = zlib.crc32(what.encode()) % _TABLE_SIZE
    if number in _plans and _plans[number][0] != what:
        raise LookupError(f"two plans for place {number}: {what!r} and {_plans[number][0]!r}")
    return number


def _words(plan: Plan) -> ctypes.Array:
    """A plan as the handler reads it."""
    words = [*(memory.value or 0 for memory in plan.memories), len(plan.steps)]
    for step in plan.steps:
        words += [step.primitive.value or 0, len(step.arguments), ctypes.addressof(step.arguments)]
    return (c_int64 * len(words))(*words)


@functools.cache
def _register() -> None:
    """Compiles the handler and tells XLA of it, once per process."""
    capsule = jax.ffi.pycapsule(_compiled().get_function_address("handle"))
    jax.ffi.register_ffi_target(NAME, capsule, platform="cpu")


@functools.cache
def _compiled() -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    threads, onednn = ctypes.CDLL(None), library.loaded()
    addresses = {
        "lock": threads.pthread_mutex_lock,
        "unlock": threads.pthread_mutex_unlock,
        "set_data": onednn.dnnl_memory_set_data_handle,
        "execute": onednn.dnnl_primitive_execute,
        "wait": onednn.dnnl_stream_wait,
    }
    code = _CODE.format(
        table=ctypes.addressof(_table),
        mutex=ctypes.addressof(_mutex),
        stream=library.stream().value,
        **{name: ctypes.cast(each, c_void_p).value for name, each in addresses.items()},
    )
    module = binding.parse_assembly(code)
    module.verify()
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine
