"""Functions compiled by numba, cached on disk as machine code, and called without numba.

numba's own cache takes 0.6 s to load, because it imports the whole compiler first. Here numba only
emits LLVM IR, and LLVM compiles it to an object file. Later processes pass this file to LLVM's
loader, which takes a few milliseconds and needs llvmlite but not numba.

A wheel can include the unoptimised LLVM IR (`.ci/build_hook.py`). LLVM then compiles the object
file without numba, in a quarter of the time. The IR file is named by a hash of its sources.

Functions take integers and pointers of 64 bits, return such an integer or nothing, and must neither
allocate nor raise. They are called through ctypes, which releases the GIL.

An object file is named by a hash of sources, versions, the processor and its features, so a change
of any of them leads to a new file. It starts with a checksum of 32 bytes:

    SHA-256 of key and machine code | machine code

Machine code can do anything, so it is loaded only if the file and its folder belong to this user
and nobody else can write to them. If no trusted file can be written, the code is kept in memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import lzma
import os
import sys
import tempfile
import threading
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from gbdnn.runtime.machine import machine
from gbdnn.runtime.optional import warn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = ["Library", "cache_folder", "pair_lines"]

_log = logging.getLogger("gbdnn.compiled")

_CARRIED = Path(__file__).parent / "intermediate"  # only in wheels

_CHECKSUM = hashlib.sha256().digest_size

_unstored: list[str] = []  # the warning of this process


class Library:
    """A set of compiled functions.

    Parameters
    ----------
    make : callable
        Takes `pair_lines` and returns, for each name, the function and its numba signature. It
        imports numba, and is called only if no compiled code is on disk.
    arguments : mapping of str to int
        Number of arguments of each function.
    sources : sequence of Path
        Source files of the functions.
    label : str
        Part of the file name.

    Attributes
    ----------
    seconds : float
        Time this process has spent compiling the functions.
    """

    def __init__(
        self,
        make: Callable[[int], dict[str, Any]],
        arguments: dict[str, int],
        sources: Sequence[Path],
        label: str,
    ) -> None:
        self._make = make
        self._arguments = arguments
        self._sources = sources
        self._label = label
        self._lock = threading.Lock()
        self._functions: dict[str, Callable] | None = None
        self.seconds = 0.0

    def functions(self) -> dict[str, Callable]:
        """Return the functions; load or compile them if necessary."""
        with self._lock:
            if self._functions is None:
                code = self._read()
                if code is None:
                    _log.info("compiling for this processor, once (%s, some seconds)", self._label)
                    began = perf_counter()
                    code = self.compile()
                    self.seconds = perf_counter() - began
                    self._write(code)
                self._functions = self._load(code)
            return self._functions

    @property
    def is_at_hand(self) -> bool:
        """Whether the functions are loaded or on disk, so that nothing has to be compiled."""
        if self._functions is not None:
            return True
        file = self.file
        return file is not None and file.is_file() and _is_trusted(file)

    @property
    def is_carried(self) -> bool:
        """Whether the installation includes LLVM IR, so that numba is not needed."""
        return (_CARRIED / self.intermediate_name(pair_lines())).exists()

    @property
    def file(self) -> Path | None:
        """Path of the machine code; None if there is no cache folder."""
        folder = cache_folder()
        return (
            None if folder is None else folder / f"kernels-{self._label}-{self._key.hex()[:32]}.o"
        )

    def compile(self) -> bytes:
        """Return an object file with all functions, compiled for this processor."""
        import llvmlite.binding as llvm

        target, lines = _target(), pair_lines()
        if self.is_carried:
            data = (_CARRIED / self.intermediate_name(lines)).read_bytes()
            code = lzma.decompress(data).decode()
        else:
            code = self.intermediate(lines)
        module = llvm.parse_assembly(code)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_unrolling = False  # most loops are over a few edges
        passes = llvm.create_pass_builder(target, options)
        passes.getModulePassManager().run(module, passes)
        return target.emit_object(module)

    def intermediate(self, lines: int) -> str:
        """Return LLVM IR of all functions in one module, for a `pair_lines` of `lines`.

        The IR is not optimised.
        """
        import llvmlite.binding as llvm

        with _emit_only():
            parts = [_assembly(name, *each) for name, each in self._make(lines).items()]
        module = llvm.parse_assembly(parts[0])
        for part in parts[1:]:
            module.link_in(llvm.parse_assembly(part))  # what several have in common is kept once
        for each in (*module.functions, *module.global_variables):
            # LLVM inlines internal functions that are called once. A sweep over neurons would share
            # the registers of another function.
            if not each.is_declaration and not each.name.startswith("gbdnn_"):
                each.linkage = "linkonce_odr" if "sweep" in each.name else "internal"
        module.verify()
        return str(module)

    def intermediate_name(self, lines: int) -> str:
        """Return the file name of this LLVM IR, with a hash of its sources."""
        import llvmlite.binding as llvm

        words = [f"LLVM {llvm.llvm_version_info[0]}", llvm.get_process_triple(), *self._contents]
        digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
        return f"{self._label}-{lines}-{digest[:16]}.ll.xz"

    def _read(self) -> bytes | None:
        """Return the machine code on disk; None if it is missing, damaged or untrusted."""
        file = self.file
        try:
            if file is None or not file.is_file():
                return None
            if not _is_trusted(file):
                text = (
                    f"compiling again instead of loading {file}: the file or its folder belongs to"
                    " another user or can be written by others; run chmod go-w, or set"
                    " GBDNN_CACHE_DIR to another folder"
                )
                warn(text)
                return None
            data = file.read_bytes()
        except OSError:
            return None
        code = data[_CHECKSUM:]
        return code if data[:_CHECKSUM] == self._checksum(code) else None

    def _write(self, code: bytes) -> None:
        """Store machine code atomically, or warn once that it cannot be stored."""
        if os.environ.get("GBDNN_CACHE_DIR") == "":
            return
        try:
            if (file := self.file) is None:
                raise FileNotFoundError("there is no home directory")
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=file.parent) as folder:
                made = Path(folder, file.name)
                made.touch(0o600)
                made.write_bytes(self._checksum(code) + code)
                made.replace(file)
        except OSError as error:
            text = (
                f"compiled code cannot be stored, so each process compiles it again: {error}; set"
                " GBDNN_CACHE_DIR to a folder that can be written"
            )
            if not _unstored:
                _unstored.append(text)
                warn(text)

    def _checksum(self, code: bytes) -> bytes:
        return hashlib.sha256(self._key + code).digest()

    def _load(self, code: bytes) -> dict[str, Callable]:
        import llvmlite.binding as llvm

        _bind_c_library()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        found = {}
        for name, count in self._arguments.items():
            prototype = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)
            function: Any = prototype(engine.get_function_address(f"gbdnn_{name}"))
            function.engine = engine  # keeps the machine code alive
            found[name] = function
        return found

    @cached_property
    def _key(self) -> bytes:
        """Hash of everything that determines the machine code."""
        import llvmlite.binding as llvm

        words = [
            *(f"numba {version('numba')}", f"llvmlite {version('llvmlite')}"),
            *(f"Python {sys.version_info[0]}.{sys.version_info[1]}", sys.platform),
            *(llvm.get_process_triple(), machine().cpu, machine().features),
            *self._contents,
        ]
        return hashlib.sha256("\n".join(words).encode()).digest()

    @cached_property
    def _contents(self) -> list[str]:
        """Texts that identify the sources."""
        return [
            self._label,
            *(f"{name} {count}" for name, count in self._arguments.items()),
            *(f"{each.name} {hashlib.sha256(each.read_bytes()).hexdigest()}"
              for each in self._sources),
        ]  # fmt: skip


def pair_lines() -> int:
    """Return the width, in cache lines, of a tile for a pair of neurons: 2, or 4 with AVX-512.

    About eight independent sums hide the latency of a multiply-add. They and the activations that
    the pair shares must fit the registers: 16 of half a line with AVX2, 32 of a line with AVX-512.
    """
    return 4 if "+avx512f" in machine().features.split(",") else 2


def cache_folder() -> Path | None:
    """Return the folder for machine code, or None if disabled by an empty ``GBDNN_CACHE_DIR``."""
    if (chosen := os.environ.get("GBDNN_CACHE_DIR")) is not None:
        return Path(chosen) if chosen else None
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # no home directory
        return None
    return Path(base) / "gbdnn"


def _is_trusted(file: Path) -> bool:
    """Whether a file and its folder belong to this user and nobody else can write to them."""
    found = [path.stat() for path in (file.parent, file)]
    return all(each.st_uid == os.geteuid() and not each.st_mode & 0o022 for each in found)


def _target():
    import llvmlite.binding as llvm

    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except RuntimeError:  # newer versions initialise themselves
        pass
    target = llvm.Target.from_triple(llvm.get_process_triple())
    return target.create_target_machine(
        cpu=machine().cpu,
        features=machine().features,
        opt=3,
        reloc="default",
        codemodel="jitdefault",
        jit=True,
    )


def _bind_c_library() -> None:
    """Register C functions that LLVM may substitute for loops, since its loader does not search.

    An unresolved name becomes address 0, which would fail only when it is called.
    """
    import llvmlite.binding as llvm

    process = ctypes.CDLL(None)
    for name in (
        *("memset", "memcpy", "memmove", "bzero", "fma", "fmaf"),
        *("exp", "expf", "log", "sched_yield"),
    ):
        if (function := getattr(process, name, None)) is not None:
            llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)


@contextmanager
def _emit_only() -> Iterator[None]:
    """Keep numba from optimising and compiling the LLVM IR of each function that it emits.

    numba has no public way to do this. With a version of numba without these private names,
    compiling only takes longer. numba's lock makes other threads wait.
    """
    try:
        from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
        from numba.core.compiler_lock import global_compiler_lock
        from numba.core.registry import cpu_target
    except ImportError:
        yield
        return

    class Emitted(JITCodeLibrary):
        def _optimize_functions(self, module) -> None:
            module.data_layout = str(self.codegen.target_data)

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    class Emitter(JITCPUCodegen):
        _library_class = Emitted

        def set_env(self, *_: object) -> None:
            pass  # the functions are never called here

    context = cpu_target.target_context
    with global_compiler_lock:
        usual, context._internal_codegen = context.codegen(), Emitter("gbdnn")
        try:
            yield
        finally:
            context._internal_codegen = usual


def _assembly(name: str, function: Callable, signature) -> str:
    """Return LLVM IR with a function ``gbdnn_<name>`` and those that it calls.

    numba's own C wrapper depends on Python for raising errors, which these functions never do.
    """
    import llvmlite.binding as llvm
    import numba

    compiled = numba.cfunc(signature, error_model="numpy", _nrt=False)(function)
    native = compiled.native_name.removeprefix("cfunc.")
    module = llvm.parse_assembly(compiled.inspect_llvm())
    kinds = [str(each.type) for each in module.get_function(native).arguments][2:]
    taken = ", ".join(f"{kind} %a{n}" for n, kind in enumerate(kinds))
    caller = f"""
declare i32 @{native}({", ".join(["ptr", "ptr", *kinds])})
define i64 @gbdnn_{name}({taken}) {{
  %result = alloca i64
  %error = alloca ptr
  store i64 0, ptr %result
  %status = call i32 @{native}(ptr %result, ptr %error, {taken})
  %r = load i64, ptr %result
  ret i64 %r
}}
"""
    module.link_in(llvm.parse_assembly(caller))
    return str(module)
