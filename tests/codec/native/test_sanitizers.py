"""The native code under the address and undefined-behaviour sanitizers, fed by the fuzzers.

All extensions are built anew with instrumentation, into a directory of their own, and the tests
that compare them with their twins on odd and damaged input run on those copies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "broker_core" / "codec" / "native"
RUNTIME = ROOT / "broker_core" / "runtime"
PAYLOADS = ROOT / "pyspark_rmq" / "payloads" / "native"
OPTIONS = (
    "-O1",
    # Lines for reports; more would take a third of the build.
    "-g1",
    "-std=gnu11",
    "-fno-omit-frame-pointer",
    "-fvisibility=hidden",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-shared",
    "-fPIC",
)
# Everything that calls the native functions with chosen, random or damaged input.
FED = (
    *(
        path.relative_to(ROOT).as_posix()
        for folder in ("native", "reference")
        for path in sorted((ROOT / "tests" / "codec" / folder).glob("test_*.py"))
        if path.name != Path(__file__).name
    ),
    "tests/codec/records/test_golden_vectors.py",
    "tests/codec/wire/test_plain_send.py",
    "tests/runtime/test_lane_worker.py",
    "tests/pyspark_rmq/payloads/native/test_columns.py",
    "tests/pyspark_rmq/payloads/native/test_avro_plan.py",
    "tests/pyspark_rmq/payloads/native/test_protobuf_plan.py",
)
FED_LONG = (
    "tests/codec/wire/test_frame_parser.py",
    "tests/codec/records/test_message_record.py",
    "tests/remoting/test_socket_fuzz.py",
    "tests/storage/log/test_append_group.py",
    "tests/storage/derived/test_message_index.py",
    "tests/store/test_bad_input.py",
    "tests/store/reads/test_message_reader.py",
    "tests/broker/test_hostile_requests.py",
    "tests/broker/send/test_bursts.py",
)
LIMIT_S = 6 * 3_600
PLANTED = r"""
#include <Python.h>
#include <limits.h>

static PyObject *beyond(PyObject *self, PyObject *given) {
    (void)self;
    char *text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(given, &text, &size) < 0)
        return NULL;
    /* One behind the zero that ends every bytes object. */
    return PyLong_FromLong(((volatile char *)text)[size + 1]);
}

static PyObject *overflow(PyObject *self, PyObject *given) {
    (void)self;
    volatile int number = (int)PyLong_AsLong(given);
    return PyLong_FromLong(number + INT_MAX);
}

static PyMethodDef methods[] = {
    {"beyond", beyond, METH_O, NULL}, {"overflow", overflow, METH_O, NULL}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "planted", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_planted(void) { return PyModule_Create(&module); }
"""


def build(target: Path, *sources: Path) -> None:
    """One instrumented extension."""
    compiler = os.environ.get("CC", "gcc")
    include = sysconfig.get_path("include")
    done = subprocess.run(
        [
            compiler,
            *OPTIONS,
            f"-I{include}",
            f"-I{NATIVE / 'include'}",
            f"-I{PAYLOADS}",
            *map(str, sources),
            "-o",
            str(target),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def library() -> str:
    """The library that has to be loaded before the interpreter's own allocations."""
    try:
        found = subprocess.run(
            [os.environ.get("CC", "gcc"), "-print-file-name=libasan.so"],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no compiler to build the native code with: {error}")
    if not Path(found).is_file():
        pytest.skip("the compiler has no address sanitizer (libasan.so)")
    return found


def run_python(library: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """An interpreter whose memory is watched; every object is allocated on its own."""
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        # The interpreter itself frees little at its end.
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1:exitcode=99",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1:exitcode=99",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=ROOT,
        env=environment,
        timeout=LIMIT_S,
    )


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_the_native_code_does_nothing_that_is_not_defined(
    tmp_path: Path, library: str, long_run: bool
) -> None:
    build(tmp_path / "_native.so", *sorted(NATIVE.glob("*.c")))
    build(tmp_path / "_system_lane.so", RUNTIME / "_system_lane.c")
    build(tmp_path / "_columns.so", *sorted(PAYLOADS.glob("*.c")))
    files = FED + FED_LONG if long_run else FED
    sizes = () if long_run else ("--hypothesis-profile=sanitized",)
    done = run_python(
        library,
        *("-m", "pytest", "-q", "-x", "-p", "tests.codec.sanitized_modules"),
        *("-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=0"),
        # Skips the cases of the Python twins.
        *("-k", "not pure_python"),
        *sizes,
        *files,
        RMQ_SANITIZED=str(tmp_path),
    )
    text = f"{done.stdout[-6_000:]}\n{done.stderr[-6_000:]}"
    assert done.returncode == 0, text
    assert " passed" in done.stdout, text


@pytest.mark.parametrize(
    ("call", "report"),
    [
        ("beyond(b'x' * 1_000)", "AddressSanitizer: heap-buffer-overflow"),
        ("overflow(1)", "runtime error: signed integer overflow"),
    ],
    ids=["address", "undefined"],
)
def test_a_planted_mistake_is_found(tmp_path: Path, library: str, call: str, report: str) -> None:
    """Built and run in the same way as the native code is."""
    source = tmp_path / "planted.c"
    source.write_text(PLANTED)
    build(tmp_path / "planted.so", source)
    loading = (
        "import importlib.util as u\n"
        f"spec = u.spec_from_file_location('planted', {str(tmp_path / 'planted.so')!r})\n"
        "planted = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(planted)\n"
    )
    harmless = run_python(library, "-c", f"{loading}planted.overflow(0)")
    assert harmless.returncode == 0, harmless.stderr
    done = run_python(library, "-c", f"{loading}planted.{call}")
    assert done.returncode != 0
    assert report in done.stderr
