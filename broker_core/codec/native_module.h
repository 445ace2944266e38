/* What the native functions share on the Python side: module state, errors, arguments, the GIL. */
#ifndef RMQ_NATIVE_MODULE_H
#define RMQ_NATIVE_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "native_block.h"
#include "native_layout.h"

typedef enum { TEXT_TOPIC, TEXT_TAGS, TEXT_KEYS, TEXT_UNIQUE_KEY, TEXT_PROPERTIES, TEXT_MESSAGE_ID,
               TEXT_COLUMNS } TextColumnKind;

typedef struct {
    PyObject *reasons[REASON_COUNT]; /* texts of record_reasons.py */
    PyObject *malformed_batch;
    PyObject *malformed_record;
    PyObject *corrupt_record;
    PyObject *batch_type; /* column_batch.ColumnBatch */
    PyObject *scan_type;  /* record_scan.Scan */
    PyObject *block_type; /* of native_block.h */
    BlockPool pool;
    size_t text_row_sizes[TEXT_COLUMNS]; /* bytes per row when that column was last large */
} CodecState;

/* A check that failed without the GIL: what, and at which row, byte or log position. */
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

/* A signed number up to 64 bits: 1 if it is in [min, max], 0 if it is an int outside, -1 with an
 * exception set if it is no int. */
int number_in_range(PyObject *object, int64_t min, int64_t max, int64_t *value);

static inline int is_range(int64_t start, int64_t limit, Py_ssize_t size) {
    return 0 <= start && start <= limit && limit <= size;
}

/* Gives up the GIL for loops that touch more than `work` > 32 KiB; pair with take_gil. */
PyThreadState *release_gil(uint64_t work);
void take_gil(PyThreadState *saved);

/* The functions of the module, one per contract entry. */
PyObject *codec_measure_batch(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_encode_batch(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_encode_message(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *codec_encode_put(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *codec_inspect_run(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_relocate_run(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_check_record(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_scan_records(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_gather_records(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_decode_columns(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_append_index_entries(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_split_client_batch(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_choose_units(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_cut_wire_runs(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_find_unusual(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_join_client_batch(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_read_plain_send(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *codec_read_sends(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *codec_join_sent_replies(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_column_crcs(PyObject *module, PyObject *args, PyObject *keywords);
PyObject *codec_list_message_ids(PyObject *module, PyObject *args, PyObject *keywords);

#endif
