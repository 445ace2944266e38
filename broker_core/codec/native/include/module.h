/* Shared by all native functions: module state, errors, argument parsing, the GIL. */
#ifndef RMQ_NATIVE_MODULE_H
#define RMQ_NATIVE_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "block.h"
#include "layout.h"

typedef enum { TEXT_TOPIC, TEXT_TAGS, TEXT_KEYS, TEXT_UNIQUE_KEY, TEXT_PROPERTIES, TEXT_MESSAGE_ID,
               TEXT_COLUMNS } TextColumnKind;

typedef struct {
    PyObject *reasons[REASON_COUNT]; /* texts of record_reasons.py */
    PyObject *malformed_batch;
    PyObject *malformed_record;
    PyObject *corrupt_record;
    PyObject *batch_type; /* column_batch.ColumnBatch */
    PyObject *scan_type;  /* record_scan.Scan */
    PyObject *block_type; /* of block.h */
    BlockPool pool;
    size_t text_row_sizes[TEXT_COLUMNS]; /* bytes per row when that column was last large */
} CodecState;

/* A failed check: the reason, and the row, byte or log position. */
typedef struct {
    Reason reason;
    int64_t where;
} Fault;

/* Raise the Python error for `reason`; all return NULL. REASON_NO_MEMORY becomes MemoryError. */
PyObject *raise_malformed_batch(CodecState *state, Fault fault);
PyObject *raise_malformed_record(CodecState *state, Fault fault);
PyObject *raise_corrupt_record(CodecState *state, Fault fault);
PyObject *raise_value_error(CodecState *state, Reason reason);

/* "O&" converters for integer arguments. `to_bounded` saturates, for values that a range check
 * follows; `to_int64` raises OverflowError, for values that go into a 64-bit field. */
int to_bounded(PyObject *object, void *int64);
int to_int64(PyObject *object, void *int64);

/* "O&" converter for a writable buffer: BufferError if it is read-only. */
int to_writable(PyObject *object, void *view);

/* Reads a signed 64-bit number: 1 if it is in [min, max], 0 if it is outside, -1 with an exception
 * set if the object is no int. */
int number_in_range(PyObject *object, int64_t min, int64_t max, int64_t *value);

static inline int is_range(int64_t start, int64_t limit, Py_ssize_t size) {
    return 0 <= start && start <= limit && limit <= size;
}

/* Releases the GIL for loops that touch more than 32 KiB; pair with take_gil. */
PyThreadState *release_gil(uint64_t work);
void take_gil(PyThreadState *saved);

/* One entry of a table of functions: `codec_NAME` with the signature of its Python twin. */
#define NATIVE_FUNCTION(name, arguments, signature, text)                                          \
    {#name, (PyCFunction)(void (*)(void))codec_##name, arguments,                                  \
     #name "($module, " signature ")\n--\n\n" text}

enum {
    NAMED_ARGUMENTS = METH_VARARGS | METH_KEYWORDS,
    PLACED_ARGUMENTS = METH_FASTCALL, /* by position only */
    ONE_ARGUMENT = METH_O,
};

/* The tables of the files that have functions for Python. */
extern PyMethodDef block_functions[];
extern PyMethodDef client_batch_functions[];
extern PyMethodDef crc_functions[];
extern PyMethodDef decode_functions[];
extern PyMethodDef encode_functions[];
extern PyMethodDef index_functions[];
extern PyMethodDef plain_send_functions[];
extern PyMethodDef run_functions[];
extern PyMethodDef scan_functions[];
extern PyMethodDef send_burst_functions[];
extern PyMethodDef spans_functions[];
extern PyMethodDef text_functions[];

#endif
